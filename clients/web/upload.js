// Sending scans: a small one in one request, a large one as a resumable upload, which goes on after a lost connection
// and, where the same file is dropped again, after the page was closed.
import * as api from "./api.js";
import {accept, select} from "./jobs.js";
import {change, now, say} from "./store.js";

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

/** Send a file as a job of a kind; `show`: select the job once it is accepted. */
async function sendFile(file, kind, show) {
    const key = ++counter;
    const query = new URLSearchParams({...(kind ? {kind} : {}), name: file.name}).toString();
    change({uploads: [...now().uploads, {key, name: file.name, size: file.size, sent: 0, problem: null}]});
    try {
        const job = file.size >= RESUMABLE ? await resumable(key, file, query) : await post(file, query);
        set(key, null);
        accept(job);
        if (show)
            select(job.id);
        say(`${file.name} is accepted.`);
    } catch (error) {
        set(key, {problem: error.message, stop: () => set(key, null)});
    }
}

/** Upload files one after the other, so that they do not share the bandwidth; `kindOf` gives the kind of each job. */
export async function sendFiles(files, kindOf) {
    let show = true;
    for (const file of files) {
        await sendFile(file, kindOf(file), show);
        show = false;
    }
}
