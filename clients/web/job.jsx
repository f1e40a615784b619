// One job: its image, why it failed or what was decided, how long each stage took, its files, where it was sent, and
// how to run it again.
import {useEffect, useLayoutEffect, useState} from "preact/hooks";
import * as api from "./api.js";
import {Deliveries} from "./deliveries.jsx";
import {formOf} from "./forms.js";
import {cancel, doom, hasScan, nameOf, pin} from "./jobs.js";
import {changed, Parameters, proposals} from "./parameters.jsx";
import {change, mayChange, now, useStore} from "./store.js";
import * as text from "./text.js";
import {again} from "./upload.js";
import {Result} from "./viewer.jsx";

/** The whole document of a job, anew whenever its state changes; and of a finished one, its results. */
function useWhole(id) {
    const listed = useStore((state) => id ? state.jobs.get(id) : null);
    const sent = useStore((state) => id ? state.sent.get(id) : undefined);
    const reloads = useStore((state) => state.reloads);
    const [whole, setWhole] = useState({job: null, results: [], problem: null});
    const state = listed?.state;
    useEffect(() => {
        if (!id)
            return undefined;
        let gone = false;
        (async () => {
            const job = await api.job(id);
            const results = job.state === "succeeded" ? await api.results(id) : [];
            if (!gone)
                setWhole({job, results, problem: null});
        })().catch((error) => !gone && setWhole({job: null, results: [], problem: error.message}));
        return () => { gone = true; };
    }, [id, state, reloads]);
    if (!id)
        return {job: null, results: [], problem: null};
    // The list's entry is newer while the job runs, and so is what the stream tells of its deliveries.
    const {job} = whole;
    return {...whole, job: job && {...job, ...listed, report: job.report, deliveries: sent ?? job.deliveries}};
}

function Stages({stages}) {
    const times = Object.entries(stages);
    const all = times.reduce((sum, [, time]) => sum + time, 0) || 1;
    return <section class="block">
        <div class="bar"><h3>Stages</h3><span class="quiet">{text.seconds(all)}</span></div>
        <table class="stages"><tbody>
            {times.map(([name, time]) => <tr key={name}>
                <th scope="row">{name}</th>
                <td><span class="track"><span class="share" style={{width: `${100 * time / all}%`}} /></span></td>
                <td class="number">{text.seconds(time)}</td>
            </tr>)}
        </tbody></table>
    </section>;
}

function Decisions({decisions}) {
    return <section class="block">
        <h3>Decisions</h3>
        <dl class="decisions">
            {decisions.map(({what, value, reason}) => <div key={what}>
                <dt>{what}</dt><dd><strong>{String(value)}</strong><p>{text.sentence(reason)}</p></dd>
            </div>)}
        </dl>
    </section>;
}

function Proposed({job, kind, sentences}) {
    if (!useStore(mayChange))
        return null;
    return <div class="proposals">
        {proposals(sentences, kind).filter(([name, value]) => String(job.parameters[name]) !== value)
            .map(([name, value]) =>
            <button key={name + value} type="button" onClick={() => again(job, {[name]: value})}>
                Run again with {name}={value}</button>)}
    </div>;
}

function Failure({job, kind, edit}) {
    const may = useStore(mayChange);
    return <section class="failure" role="alert">
        <h3>{job.error.title}</h3>
        <p>{job.error.detail}</p>
        <Proposed job={job} kind={kind} sentences={[job.error.detail]} />
        {may && <button type="button" onClick={edit}>Change parameters and run again</button>}
    </section>;
}

function Warnings({job, kind}) {
    const {warnings} = job.report;
    return <section class="warnings">
        <h3>{warnings.length > 1 ? "Warnings" : "Warning"}</h3>
        {warnings.map((words) => <p key={words}>{words}</p>)}
        <Proposed job={job} kind={kind} sentences={warnings} />
    </section>;
}

function Downloads({results}) {
    return <section class="block">
        <h3>Downloads</h3>
        {results.map((result) => <p key={result.name} class="downloads">
            <span title={result.help}>{result.name}</span>
            {result.formats.map(({format, href, file, bytes}) =>
                <a key={format} href={href} download={file}>{format}{bytes ? ` (${text.bytes(bytes)})` : ""}</a>)}
        </p>)}
    </section>;
}

/** Text to be copied. */
function Lines({title, lines}) {
    const [copied, setCopied] = useState(false);
    const copy = async () => {
        await navigator.clipboard.writeText(lines);
        setCopied(true);
    };
    return <div>
        <div class="bar"><h3>{title}</h3>
            {navigator.clipboard &&
                <button type="button" class="link" onClick={copy}>{copied ? "Copied" : "Copy"}</button>}
        </div>
        <pre tabIndex={0} aria-label={title}><code>{lines}</code></pre>
    </div>;
}

/** How the same scan is sent with the same parameters by programs. A token is taken from the variable that the
 * command mrirecon and the Python package take it from. */
function Commands({job, kind}) {
    const tokens = useStore((state) => Boolean(state.identity?.tokens));
    const words = [["kind", job.kind], ...changed(job, kind).map(({name}) => [name, String(job.parameters[name])])];
    const query = words.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
    const file = job.name || "scan.h5", url = `${location.origin}/v1/jobs?${query}`;
    const header = tokens ? `-H "Authorization: Bearer $MRIRECON_TOKEN" ` : "";
    const curl = `curl -sS --fail-with-body ${header}--data-binary ${text.quoted(`@${file}`)} -o job.json ` +
        text.quoted(url);
    // lambda is a word of Python's own.
    const given = words.map(([name, value]) => name === "lambda" ? `, **${JSON.stringify({[name]: value})}` :
        `, ${name}=${JSON.stringify(value)}`).sort((a, b) => a.startsWith(", **") - b.startsWith(", **")).join("");
    const python = `import mrirecon\nserver = mrirecon.Server(${JSON.stringify(location.origin)})\n` +
        `job = server.submit(${JSON.stringify(file)}${given}).wait()`;
    return <section class="block">
        <Lines title="With curl" lines={curl} />
        <Lines title="With Python" lines={python} />
    </section>;
}

const FACTS = [["matrix", "Matrix", (value) => value.join(" × ")], ["coils", "Coils"], ["images", "Images"],
    ["samples", "Samples", (value) => value.toLocaleString("en")], ["device", "Device"],
    ["grid", "Grid", (value) => value.join(" × ")], ["kernel_width", "Kernel width"],
    ["oversampling", "Oversampling"]];

function Facts({report}) {
    const known = FACTS.filter(([name]) => report[name] !== undefined && report[name] !== null);
    return known.length > 0 && <section class="block">
        <h3>Facts</h3>
        <table class="facts"><tbody>
            {known.map(([name, label, say]) => <tr key={name}>
                <th scope="row">{label}</th><td>{say ? say(report[name]) : String(report[name])}</td></tr>)}
        </tbody></table>
    </section>;
}

function Title({job, editing, setEditing}) {
    const pinned = useStore((state) => state.pinned);
    const may = useStore(mayChange);
    const has = useStore((state) => hasScan(state, job));
    const parent = useStore((state) => state.jobs.get(state.parents.get(job.id)));
    const over = may && api.FINAL.includes(job.state);
    const comparable = job.state === "succeeded" && parent?.state === "succeeded" && pinned !== parent.id;
    return <div class="title">
        <div>
            <h2>{nameOf(job)}</h2>
            <p class="quiet">
                <span class={`state ${job.state}`}>{text.stateName(job.state)}</span>
                {job.duration !== null && job.duration !== undefined && ` in ${text.seconds(job.duration)}`}
                {` · ${job.kind} · ${job.client} · ${new Date(job.created).toLocaleString()} · `}
                <code>{job.id}</code>
            </p>
        </div>
        <div class="buttons">
            {comparable && <button type="button" class="main" title="Pin the first one; F flips between both images"
                onClick={() => pin(parent.id)}>Compare with the first</button>}
            {over && <button type="button" title={has ? undefined : "The scan was not kept, and the page has no file"}
                onClick={() => again(job)}>{has ? "Run again" : "Run again with its file…"}</button>}
            {over && <button type="button" aria-expanded={editing}
                onClick={() => setEditing(!editing)}>Same again with…</button>}
            {job.state === "succeeded" && <button type="button" aria-pressed={pinned === job.id}
                title="Compare other jobs with this one (P)" onClick={() => pin(pinned === job.id ? null : job.id)}>
                {pinned === job.id ? "Pinned" : "Pin"}</button>}
            {over && <button type="button" onClick={() => doom(job)}>Delete</button>}
            {may && !over && <button type="button" onClick={() => cancel(job)}>Cancel</button>}
        </div>
    </div>;
}

function Working({job}) {
    return <div class="image"><div class="stage working">
        <p>{job.state === "queued" ? "Waiting for a worker." : text.step(job) || text.stateName(job.state)}</p>
        <progress max="1" value={job.state === "queued" ? undefined : job.progress}
            aria-label={`Progress of ${nameOf(job)}`} />
        {job.ahead > 0 && <p class="quiet">{text.plural(job.ahead, "job")} before this one.</p>}
    </div></div>;
}

/** The results of a job on the screen, one at a time. */
function Results({job, results, compared}) {
    const [name, setName] = useState(null);
    const order = {volume: 0, surface: 1, curve: 2, picture: 3, file: 4};
    const sorted = [...results].sort((a, b) => order[formOf(a).form] - order[formOf(b).form]);
    const result = results.find((one) => one.name === name) ?? sorted[0];
    if (!result)
        return null;
    const twin = compared.results.find((one) => one.name === result.name) ?? compared.results.find((one) =>
        formOf(one).form === "volume");
    return <div class="results">
        {results.length > 1 && <div class="tabs" role="group" aria-label="Results">
            {results.map((one) => <button key={one.name} type="button" aria-pressed={one === result} title={one.help}
                onClick={() => setName(one.name)}>{one.name}</button>)}
        </div>}
        <Result job={job} result={result} other={twin && {job: compared.job, result: twin}} />
    </div>;
}

/** F flips between the images of two jobs, wherever the focus is but in a field: from the moment on at which the page
 * shows that there are two. */
function useFlipKey(active) {
    useLayoutEffect(() => {
        if (!active)
            return undefined;
        const press = (event) => {
            if (event.key !== "f" || event.ctrlKey || event.metaKey || event.altKey ||
                event.target.closest("input:not([type=range]), select, textarea"))
                return;
            event.preventDefault();
            change({flipped: !now().flipped});
        };
        addEventListener("keydown", press);
        return () => removeEventListener("keydown", press);
    }, [active]);
}

export function JobView({id}) {
    const {job, results, problem} = useWhole(id);
    const pinned = useStore((state) => state.pinned);
    const compared = useWhole(pinned !== id ? pinned : null);
    const kinds = useStore((state) => state.kinds);
    const [editing, setEditing] = useState(false);
    useFlipKey(Boolean(compared.job));
    if (!job)
        return <section class="job empty" aria-label="Job"><p>{problem ?? "Opening the job."}</p></section>;
    const kind = kinds.find((one) => one.name === job.kind);
    const {report} = job;
    return <section class="job" aria-label="Job" data-job={id} data-state={job.state}>
        <Title job={job} editing={editing} setEditing={setEditing} />
        <div class="body">
            {!api.FINAL.includes(job.state) && <Working job={job} />}
            {job.error && <Failure job={job} kind={kind} edit={() => setEditing(true)} />}
            {job.state === "canceled" && !job.error && <p class="none">This job was canceled.</p>}
            {job.state === "succeeded" && <Results job={job} results={results} compared={compared} />}
            <aside class="about" aria-label="About the job" tabIndex={0}>
                {report?.warnings?.length > 0 && <Warnings job={job} kind={kind} />}
                <Parameters job={job} kind={kind} compared={compared.job} editing={editing} setEditing={setEditing} />
                {results.length > 0 && <Downloads results={results} />}
                <Deliveries job={job} list={job.deliveries} />
                {report?.stages && <Stages stages={report.stages} />}
                {report && <Facts report={report} />}
                {report?.decisions?.length > 0 && <Decisions decisions={report.decisions} />}
                <Commands job={job} kind={kind} />
            </aside>
        </div>
    </section>;
}
