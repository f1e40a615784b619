// Where scans are dropped: the strip below, and the whole page while a file is dragged over it.
import {useEffect, useRef, useState} from "preact/hooks";
import {nameOf} from "./jobs.js";
import {change, mayChange, useStore} from "./store.js";
import * as text from "./text.js";
import {give, sendFiles} from "./upload.js";

/** Whether a file is being dragged over the page; what is dropped goes to `send`. */
function useDragging(send) {
    const [over, setOver] = useState(false);
    const latest = useRef(send);
    latest.current = send;
    useEffect(() => {
        const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
        const drag = (event) => {
            if (!hasFiles(event))
                return;
            event.preventDefault();
            setOver(true);
        };
        const leave = (event) => event.relatedTarget === null && setOver(false);
        const drop = (event) => {
            if (!hasFiles(event))
                return;
            event.preventDefault();
            setOver(false);
            latest.current([...event.dataTransfer.files]);
        };
        const listeners = {dragenter: drag, dragover: drag, dragleave: leave, drop};
        for (const [name, listener] of Object.entries(listeners))
            addEventListener(name, listener);
        return () => {
            for (const [name, listener] of Object.entries(listeners))
                removeEventListener(name, listener);
        };
    }, []);
    return over;
}

/** The kind of job for a file: the first kind that accepts files with this extension, else the first kind. */
function kindOf(file, kinds) {
    const takes = ({inputs}) => inputs.some((input) => {
        const ending = /\((\.\w+)/.exec(input)?.[1];
        return ending && file.name.toLowerCase().endsWith(ending);
    });
    return (kinds.find(takes) ?? kinds[0])?.name;
}

function Sending({upload}) {
    const {name, size, sent, problem, stop} = upload;
    if (problem)
        return <li class="bad"><span><strong>{name}</strong> {problem}</span>
            <button type="button" onClick={stop}>Dismiss</button></li>;
    return <li><span>{name}, {text.bytes(sent)} of {text.bytes(size)}</span>
        <progress max={size || 1} value={sent || undefined} aria-label={`Sending ${name}`} />
        {stop && <button type="button" onClick={stop}>Stop</button>}</li>;
}

/** The place to send scans from; a role that only reads has none. */
export function Drop() {
    const identity = useStore((state) => state.identity);
    const may = useStore(mayChange);
    const known = useStore((state) => state.kinds.length > 0);
    if (!may || !known)
        return <p class="quiet">
            {identity && !may ? `Your role (${identity.role}) can view jobs, but not submit any.` : ""}</p>;
    return <Sender />;
}

/** The request for the file of a job that shall run again. */
function Wanted({job, input}) {
    return <div class="wanted" role="alert">
        <p>The scan of <strong>{nameOf(job)}</strong> was not kept. Choose its file ({text.bytes(job.bytes)}) to run it
            again, or drop it.</p>
        <button type="button" class="main" onClick={() => input.current.click()}>Choose its file</button>
        <button type="button" onClick={() => change({wanted: null})}>Do not run</button>
    </div>;
}

function Sender() {
    const kinds = useStore((state) => state.kinds);
    const uploads = useStore((state) => state.uploads);
    const wanted = useStore((state) => state.wanted);
    const [kind, setKind] = useState("");
    const input = useRef(null);
    const send = (files) => {
        change({notice: null});
        if (wanted)
            give(files[0]);
        else
            sendFiles(files, (file) => kind || kindOf(file, kinds));
    };
    const over = useDragging(send);
    const inputs = new Set(kinds.filter(({name}) => !kind || name === kind).flatMap((one) => one.inputs));
    return <section class={`drop ${over ? "over" : ""}`} aria-label="Send scans">
        {wanted ? <Wanted job={wanted.job} input={input} /> :
            <button type="button" class="main" onClick={() => input.current.click()}>Send a scan</button>}
        <input ref={input} type="file" multiple hidden aria-label="Files to send" onChange={(event) => {
            if (event.target.files.length > 0)
                send([...event.target.files]);
            event.target.value = "";
        }} />
        {!wanted && kinds.length > 1 && <select aria-label="Kind of job" value={kind}
            onChange={(event) => setKind(event.target.value)}>
            <option value="">Kind by the file's name</option>
            {kinds.map(({name, help}) => <option key={name} value={name} title={help}>{name}</option>)}
        </select>}
        {uploads.length === 0 ? !wanted && <p class="quiet">
            {over ? "Let go to send." :
                `or drop files anywhere. ${inputs.size > 0 ? `Accepted: ${[...inputs].join("; ")}.` : ""}`}
        </p> : <ul class="uploads">{uploads.map((upload) => <Sending key={upload.key} upload={upload} />)}</ul>}
        {over && <div class="veil" aria-hidden="true"><p>Let go to send.</p></div>}
    </section>;
}
