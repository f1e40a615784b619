// Sending scans: a small one in one request, a large one as a resumable upload, which goes on after a lost connection
// and, where the same file is dropped again, after the page was closed.
import * as api from "./api.js";
import {accept, nameOf, repeated, select} from "./jobs.js";
import {change, now, say} from "./store.js";
import {bytes} from "./text.js";

const RESUMABLE = 32 << 20; // bytes from which a scan is sent as a resumable upload
const PIECE = 64 << 20;     // bytes of one request of it
const RETRIES_MS = [500, 1000, 2000, 4000, 8000, 15000, 30000];

let counter = 0;

/** Change an upload in the state, or with null take it away. */
function set(key, members) {
    const uploads = now().uploads;
    change({uploads: members ? uploads.map((one) => one.key === key ? {...one, ...members} : one) :
        uploads.filter((one) => one.key !== key)});
}

async function post(file, query) {
    const response = await api.send("POST", `/v1/jobs?${query}`,
        {body: file, headers: {"Content-Type": "application/octet-stream"}});
    return response.json();
}

/** The sentence of tus-js-client's error. */
function sentenceOf(error) {
    const body = error.originalResponse?.getBody();
    try {
        return JSON.parse(body).detail;
    } catch {
        return "The connection was lost. Drop the same file again to go on.";
    }
}

async function resumable(key, file, query) {
    const {Upload} = await import("tus-js-client");
    return new Promise((resolve, reject) => {
        const upload = new Upload(file, {
            endpoint: `/v1/uploads?${query}`, chunkSize: PIECE, retryDelays: RETRIES_MS,
            headers: api.OWN, metadata: {filename: file.name}, removeFingerprintOnSuccess: true,
            fingerprint: async () => ["mrirecond", query, file.name, file.size, file.lastModified].join("-"),
            onShouldRetry: (error) => {
                const status = error.originalResponse?.getStatus();
                return !(status >= 400 && status < 500 && ![409, 423, 429].includes(status));
            },
            onProgress: (sent) => set(key, {sent}),
            onError: (error) => reject(new api.Problem(sentenceOf(error))),
            // An upload becomes the job of the same id.
            onSuccess: () => api.job(upload.url.split("/").pop()).then(resolve, reject),
        });
        set(key, {stop: () => upload.abort(true).then(() => set(key, null))});
        upload.findPreviousUploads().then((earlier) => {
            if (earlier.length > 0)
                upload.resumeFromPreviousUpload(earlier[0]);
            upload.start();
        }, reject);
    });
}

const files = new Map(); // the file of each job that was sent from this page, by the job's id

/** Send a file as a job; `words`: of its query. The job, or null. */
async function sendFile(file, words) {
    const key = ++counter;
    const query = new URLSearchParams(words).toString();
    change({uploads: [...now().uploads, {key, name: file.name, size: file.size, sent: 0, problem: null}]});
    try {
        const job = file.size >= RESUMABLE ? await resumable(key, file, query) : await post(file, query);
        set(key, null);
        files.set(job.id, file);
        change({held: new Set(files.keys())});
        accept(job);
        return job;
    } catch (error) {
        set(key, {problem: error.message, stop: () => set(key, null)});
        return null;
    }
}

/** Upload files one after the other, so that they do not share the bandwidth; `kindOf` gives the kind of each job. */
export async function sendFiles(chosen, kindOf) {
    let show = true;
    for (const file of chosen) {
        const kind = kindOf(file);
        const job = await sendFile(file, {...(kind ? {kind} : {}), name: file.name});
        if (job && show)
            select(job.id);
        if (job)
            say(`${file.name} is accepted.`);
        show = false;
    }
}

/** Run a job again with a file that holds its scan. */
async function sendAgain(job, parameters, file) {
    change({wanted: null});
    const known = now().kinds.find((kind) => kind.name === job.kind)?.parameters ?? [];
    const kept = known.filter(({name, default: usual}) => String(job.parameters[name] ?? usual) !== String(usual));
    const created = await sendFile(file, {kind: job.kind, ...(job.name ? {name: job.name} : {}),
        priority: job.priority, ...Object.fromEntries(kept.map(({name}) => [name, job.parameters[name]])),
        ...parameters});
    if (created)
        repeated(job, created, parameters);
    return created;
}

/** Run a job again with some parameters changed: with the scan that the service has kept or else with the file that was
 * sent from this page. If there is neither, the file is asked for. The new job, or null: there is none yet. */
export async function again(listed, parameters = {}) {
    try {
        const job = await api.job(listed.id);
        if (job.scan_kept)
            return repeated(job, await api.resubmit(job.id, parameters), parameters);
        const file = files.get(job.id);
        if (file)
            return await sendAgain(job, parameters, file);
        change({wanted: {job, parameters}, notice: null});
    } catch (error) {
        say(error.message, true);
    }
    return null;
}

/** Take the file of the job that waits for it. A file of another size is not its scan. */
export async function give(file) {
    const {job, parameters} = now().wanted;
    if (file.size !== job.bytes)
        say(`${file.name} has ${bytes(file.size)} (${file.size}), the scan of ${nameOf(job)} had ${job.bytes}: ` +
            "it is another file.", true);
    else
        await sendAgain(job, parameters, file);
}
