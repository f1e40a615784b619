// The page's frame: the service above, the list on the left, one job on the right, the place to drop scans below.
import {useEffect, useRef, useState} from "preact/hooks";
import * as api from "./api.js";
import {DeliveriesLink, Outbox} from "./deliveries.jsx";
import {Drop} from "./drop.jsx";
import {JobView} from "./job.jsx";
import {nameOf, remove} from "./jobs.js";
import {List} from "./list.jsx";
import {Login} from "./login.jsx";
import {change, now, say, useStore} from "./store.js";
import * as text from "./text.js";

/** What the service says of itself, as one sentence. */
function condition(readiness, connection) {
    if (connection === "lost")
        return "The service does not answer. The page connects again by itself.";
    if (!readiness)
        return "Connecting to the service.";
    if (readiness.status === "ready")
        return "Ready for scans.";
    const reasons = Object.values(readiness.checks ?? {}).filter((check) => check !== "ok");
    if (reasons.length === 0)
        return "Not ready.";
    return `Not ready: ${text.sentence(reasons[0]).replace(/^./, (c) => c.toLowerCase())}`;
}

function Fact({label, children, title}) {
    return <div class="fact" title={title}><dt>{label}</dt><dd>{children}</dd></div>;
}

function Queue({queue}) {
    const waiting = Object.values(queue.waiting).reduce((sum, count) => sum + count, 0);
    return <Fact label="Queue" title={`At most ${text.plural(queue.limit, "job")} may wait.`}>
        {queue.running.toLocaleString("en")} running, {waiting.toLocaleString("en")} waiting
    </Fact>;
}

function Disk({disk}) {
    const used = 1 - disk.free_bytes / disk.bytes;
    return <Fact label="Disk" title={`${text.bytes(disk.uploads_free_bytes)} are left for uploads.`}>
        <meter aria-label="Used part of the disk" min="0" max="1" high="0.9" low="0.75" optimum="0" value={used} />
        {text.bytes(disk.free_bytes)} free
    </Fact>;
}

/** Whose token the page uses, and the way out. */
function Person() {
    const identity = useStore((state) => state.identity);
    if (!identity?.tokens)
        return null;
    const leave = () => api.logout().then(() => location.reload(), (error) => say(error.message, true));
    return <Fact label="Token" title={`Role: ${identity.role}.`}>
        {identity.client} <button type="button" class="link" onClick={leave}>Sign out</button>
    </Fact>;
}

function Header() {
    const readiness = useStore((state) => state.readiness);
    const connection = useStore((state) => state.connection);
    const sends = useStore((state) => state.destinations.length + state.failed.size > 0);
    const good = connection === "live" && readiness?.status === "ready";
    const devices = [...new Set((readiness?.worker_list ?? []).map((worker) => worker.device || worker.wanted))];
    return <header>
        <h1>mrirecond</h1>
        <p class={`condition ${good ? "good" : connection === "connecting" ? "" : "bad"}`} role="status">
            {condition(readiness, connection)}
        </p>
        <dl>
            {readiness?.queue && <Queue queue={readiness.queue} />}
            {readiness?.disk && <Disk disk={readiness.disk} />}
            {sends && <Fact label="Deliveries"><DeliveriesLink /></Fact>}
            {devices.length > 0 && <Fact label={devices.length > 1 ? "Devices" : "Device"}>{devices.join(", ")}</Fact>}
            <Person />
        </dl>
    </header>;
}

/** A clock for ages: the time, anew every few seconds. */
function useClock(milliseconds) {
    const [time, setTime] = useState(Date.now());
    useEffect(() => {
        const timer = setInterval(() => setTime(Date.now()), milliseconds);
        return () => clearInterval(timer);
    }, [milliseconds]);
    return time;
}

function Notice() {
    const notice = useStore((state) => state.notice);
    return <p class={`notice ${notice?.bad ? "bad" : ""}`} role="status">{notice?.text}</p>;
}

/** Asks before a job is deleted. */
function Deletion({job}) {
    const dialog = useRef(null);
    useEffect(() => {
        const before = document.activeElement;
        dialog.current.showModal();
        return () => before?.isConnected && before.focus({preventScroll: true});
    }, []);
    const close = () => change({doomed: null});
    const confirm = (event) => {
        event.preventDefault();
        close();
        remove(job);
    };
    return <dialog ref={dialog} aria-label="Delete a job" onClose={close}>
        <form onSubmit={confirm}>
            <p>Delete <strong>{nameOf(job)}</strong>, with its results{job.scan_kept ? " and its scan" : ""}?</p>
            <div class="buttons">
                <button type="submit" class="main" autofocus>Delete it</button>
                <button type="button" onClick={close}>Keep it</button>
            </div>
        </form>
    </dialog>;
}

export function App() {
    const session = useStore((state) => state.session);
    const selected = useStore((state) => state.selected);
    const view = useStore((state) => state.view);
    const doomed = useStore((state) => state.doomed);
    const time = useClock(5000);
    useEffect(() => {
        const job = selected && now().jobs.get(selected);
        document.title = job ? `${job.name || job.id} · mrirecond` : "mrirecond";
    });
    if (session === "asked")
        return <Login />;
    return <div class="page">
        <Header />
        <main>
            <List time={time} />
            {view === "deliveries" ? <Outbox /> :
                selected ? <JobView key={selected} id={selected} /> : <Empty />}
        </main>
        <footer>
            <Drop />
            <Notice />
        </footer>
        {doomed && <Deletion key={doomed.id} job={doomed} />}
    </div>;
}

function Empty() {
    return <section class="job empty" aria-label="Job">
        <p>Drop a scan anywhere on this page, or choose a job on the left.</p>
        <p class="quiet">
            In the list <kbd>↑</kbd> <kbd>↓</kbd> choose, <kbd>R</kbd> runs again, <kbd>Del</kbd> deletes.
            With two jobs, <kbd>F</kbd> flips between their images.
        </p>
    </section>;
}
