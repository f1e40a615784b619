// The table of jobs. Only the rows in view are in the document, so that its length does not matter.
import {useEffect, useLayoutEffect, useRef, useState} from "preact/hooks";
import * as api from "./api.js";
import {doom, hasScan, more, nameOf, pin, reload, select} from "./jobs.js";
import {change, mayChange, now, useStore} from "./store.js";
import * as text from "./text.js";
import {thumbnail} from "./forms.js";
import {again} from "./upload.js";

const ROW = 56;             // height of a row in pixels, as in style.css
const SPARE = 8;            // rows above and below those in view
const THUMBNAIL_MS = 120;   // a row that passes by faster asks for no picture
const TYPING_MS = 200;      // after the last key the list is filtered

const pictures = new Map(); // the address of a job's small picture, or null, by id

async function pictureOf(id) {
    if (!pictures.has(id))
        pictures.set(id, thumbnail(await api.results(id)));
    return pictures.get(id);
}

/** The picture of a finished job, asked for once its row stands still. */
function Thumbnail({job}) {
    const [source, setSource] = useState(null);
    useEffect(() => {
        setSource(null);
        if (job.state !== "succeeded")
            return undefined;
        let gone = false;
        const show = (url) => gone || setSource(url);
        const timer = setTimeout(() => pictureOf(job.id).then(show, () => show(null)), THUMBNAIL_MS);
        return () => {
            gone = true;
            clearTimeout(timer);
        };
    }, [job.id, job.state]);
    return <span class={`thumbnail ${job.state}`}>
        {source && <img src={source} alt="" width="40" height="40" onError={() => setSource(null)} />}
    </span>;
}

function Progress({job}) {
    return <span class="working">
        <progress max="1" value={job.progress} aria-label={`Progress of ${nameOf(job)}`} />
        <span>{text.step(job) || text.stateName(job.state)}</span>
    </span>;
}

function Condition({job}) {
    if (job.state === "running")
        return <Progress job={job} />;
    return <span class={`state ${job.state}`}>{text.stateName(job.state)}</span>;
}

/** The second line of a row: the failure's sentence, or whose job it is and of what kind. */
function Detail({job}) {
    if (job.error)
        return <span class="sentence" title={job.error.detail}>{job.error.detail}</span>;
    return <span class="quiet">{job.client} · {job.kind}{job.bytes ? ` · ${text.bytes(job.bytes)}` : ""}</span>;
}

function Row({job, index, time, selected, pinned, focused, onFocus}) {
    const element = useRef(null);
    useLayoutEffect(() => {
        if (focused && document.activeElement?.getAttribute("role") === "row")
            element.current.focus({preventScroll: true});
    }, [focused]);
    const act = (action) => (event) => {
        event.stopPropagation();
        action(job);
    };
    const may = useStore(mayChange);
    const has = useStore((state) => hasScan(state, job));
    const over = may && api.FINAL.includes(job.state);
    return <div ref={element} role="row" class={`row ${selected ? "selected" : ""} ${pinned ? "pinned" : ""}`}
        style={{top: `${index * ROW}px`}} aria-rowindex={index + 1} aria-selected={selected} tabIndex={focused ? 0 : -1}
        data-job={job.id} data-state={job.state} onClick={() => select(job.id)} onFocus={() => onFocus(index)}>
        <span role="gridcell"><Thumbnail job={job} /></span>
        <span role="gridcell" class="what">
            <span class="name">{nameOf(job)}</span>
            <Detail job={job} />
        </span>
        <span role="gridcell" class="how"><Condition job={job} /></span>
        <span role="gridcell" class="when">
            <time dateTime={job.created}
                title={new Date(job.created).toLocaleString()}>{text.age(job.created, time)}</time>
            <span class="quiet">{text.seconds(job.duration)}</span>
        </span>
        <span role="gridcell" class="acts">
            {over && <button type="button" tabIndex={-1}
                title={has ? "Run again (R)" : "Run again (R): the scan was not kept, you will be asked for its file"}
                aria-label={`Run ${nameOf(job)} again`} onClick={act((it) => again(it))}>↻</button>}
            {over && <button type="button" tabIndex={-1} title="Delete (Del)" aria-label={`Delete ${nameOf(job)}`}
                onClick={act(doom)}>✕</button>}
        </span>
    </div>;
}

function Filters() {
    const filter = useStore((state) => state.filter);
    const kinds = useStore((state) => state.kinds);
    const timer = useRef(0);
    const set = (member) => (event) => {
        change({filter: {...now().filter, [member]: event.target.value}});
        clearTimeout(timer.current);
        timer.current = setTimeout(reload, event.target.tagName === "SELECT" ? 0 : TYPING_MS);
    };
    return <form class="filters" role="search" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
        <input type="search" placeholder="Name" aria-label="Name contains" value={filter.name} onInput={set("name")} />
        <input type="search" placeholder="Client" aria-label="Client begins with" value={filter.client}
            onInput={set("client")} />
        <select aria-label="State" value={filter.state} onChange={set("state")}>
            <option value="">All states</option>
            {["queued", "running", "succeeded", "failed", "canceled"].map((state) =>
                <option key={state} value={state}>{text.stateName(state)}</option>)}
        </select>
        {kinds.length > 1 && <select aria-label="Kind" value={filter.kind} onChange={set("kind")}>
            <option value="">All kinds</option>
            {kinds.map(({name, help}) => <option key={name} value={name} title={help}>{name}</option>)}
        </select>}
        <select aria-label="Time" value={filter.since} onChange={set("since")}>
            <option value="">All times</option>
            <option value="1h">Last hour</option>
            <option value="12h">Last 12 hours</option>
            <option value="7d">Last 7 days</option>
        </select>
    </form>;
}

/** The keys of the list, for the row that has the focus. */
function keys(event, order, focus, setFocus) {
    const page = Math.max(1, Math.floor(event.currentTarget.clientHeight / ROW) - 1);
    const steps = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -order.length, End: order.length};
    const job = now().jobs.get(order[focus]);
    const over = job && api.FINAL.includes(job.state) && mayChange(now());
    if (event.ctrlKey || event.metaKey || event.altKey)
        return;
    if (event.key in steps) {
        const index = Math.min(order.length - 1, Math.max(0, focus + steps[event.key]));
        setFocus(index);
        select(order[index]);
    } else if (job && event.key === "Enter") {
        select(job.id);
    } else if (over && event.key === "r") {
        again(job);
    } else if (over && event.key === "Delete") {
        doom(job);
    } else if (job && event.key === "p") {
        pin(now().pinned === job.id ? null : job.id);
    } else {
        return;
    }
    event.preventDefault();
}

/** Which part of the scrolled list is in view, in pixels. */
function useView(element) {
    const [view, setView] = useState({top: 0, height: 800});
    useLayoutEffect(() => {
        const box = element.current;
        const measure = () => setView({top: box.scrollTop, height: box.clientHeight});
        const observer = new ResizeObserver(measure);
        observer.observe(box);
        box.addEventListener("scroll", measure, {passive: true});
        measure();
        return () => {
            observer.disconnect();
            box.removeEventListener("scroll", measure);
        };
    }, []);
    return view;
}

function Rows({time}) {
    const order = useStore((state) => state.order);
    const jobs = useStore((state) => state.jobs);
    useStore((state) => state.revision);
    const selected = useStore((state) => state.selected);
    const pinned = useStore((state) => state.pinned);
    const loading = useStore((state) => state.loading);
    const next = useStore((state) => state.next);
    const box = useRef(null);
    const view = useView(box);
    const [focused, setFocused] = useState(null); // id of the row that Tab reaches
    const focus = Math.max(0, order.indexOf(focused ?? selected));
    const first = Math.max(0, Math.floor(view.top / ROW) - SPARE);
    const last = Math.min(order.length, Math.ceil((view.top + view.height) / ROW) + SPARE);
    useEffect(() => {
        if (next && last + 100 > order.length)
            more();
    }, [last, next, order.length]);
    const reach = (index) => {
        setFocused(order[index]);
        const top = index * ROW;
        if (top < box.current.scrollTop)
            box.current.scrollTop = top;
        else if (top + ROW > box.current.scrollTop + box.current.clientHeight)
            box.current.scrollTop = top + ROW - box.current.clientHeight;
    };
    const indices = Array.from({length: Math.max(0, last - first)}, (_, i) => first + i);
    if (focus < first || focus >= last)
        indices.push(focus); // stays in the document, so that the focus is not lost
    return <div ref={box} class="rows" role="grid" aria-label="Jobs" aria-rowcount={next ? -1 : order.length}
        aria-busy={loading} onKeyDown={(event) => keys(event, order, focus, reach)}>
        <div class="length" role="rowgroup" style={{height: `${order.length * ROW}px`}}>
            {indices.filter((index) => index < order.length).map((index) => {
                const id = order[index];
                return <Row key={id} job={jobs.get(id)} index={index} time={time} selected={id === selected}
                    pinned={id === pinned} focused={index === focus} onFocus={() => setFocused(id)} />;
            })}
        </div>
        {order.length === 0 && !loading && <p class="quiet none">No jobs here yet.</p>}
    </div>;
}

export function List({time}) {
    const count = useStore((state) => state.order.length);
    const next = useStore((state) => state.next);
    return <section class="list" aria-label="Jobs">
        <div class="bar"><h2>Jobs</h2>
            <span class="quiet">{count.toLocaleString("en")}{next ? " and more" : ""}</span></div>
        <Filters />
        <Rows time={time} />
    </section>;
}
