// The list of jobs: pages of it, what the stream tells, and what a person does to a job.
import * as api from "./api.js";
import {change, now, say} from "./store.js";

const PAGE = 200;
let request = null; // the page of the list that is under way

const HOURS = {h: 1, d: 24};

/** Whether a job was accepted or has ended within an age, as "12h" or "7d"; "": at any time. */
function within(job, age) {
    const hours = Number.parseInt(age) * HOURS[age.at(-1)];
    return !age || Math.max(Date.parse(job.created), Date.parse(job.finished ?? job.created)) >=
        Date.now() - hours * 3600e3;
}

/** Whether the list, as it is filtered, shows this job. The service filters pages by the same rules. */
function shown(job) {
    const {state, name, client, kind, since} = now().filter;
    return (!state || job.state === state) && (!client || job.client.startsWith(client)) &&
        (!kind || job.kind === kind) && (!name || job.name.toLowerCase().includes(name.toLowerCase())) &&
        within(job, since);
}

const touched = new Set(); // ids that the stream told while a page of the list was under way: the page is older

/** Take in jobs that the stream tells. New ones that pass the filter are inserted at their place in the list. */
export function take(jobs) {
    const {jobs: known, order, next} = now();
    for (const job of jobs) {
        touched.add(job.id);
        known.set(job.id, {...known.get(job.id), ...job});
    }
    // Ids begin with their time: in descending order the newest is first. What is older than the pages that are loaded
    // comes with its page.
    const last = next ? order[order.length - 1] : "";
    const admitted = jobs.filter((job) => shown(known.get(job.id))).map(({id}) => id);
    const fresh = admitted.filter((id) => id > last && !order.includes(id));
    const gone = new Set(jobs.map(({id}) => id).filter((id) => !admitted.includes(id)));
    const kept = order.some((id) => gone.has(id)) ? order.filter((id) => !gone.has(id)) : order;
    change({jobs: known, order: fresh.length > 0 ? [...fresh, ...kept].sort().reverse() : kept});
}

/** Apply the progress of a running job. It says nothing else of the job: one that the page has not loaded comes with
 * its page of the list, or with its next change of state. */
export function advance({id, progress, step}) {
    const {jobs} = now();
    const job = jobs.get(id);
    if (!job)
        return;
    jobs.set(id, {...job, progress, step});
    change({jobs});
}

/** Take in a job that the service has just accepted, if the stream was not quicker. */
export function accept(job) {
    if (!now().jobs.has(job.id))
        take([job]);
}

/** Take in a page of the list. */
function keep(page) {
    const {jobs} = now();
    for (const job of page.jobs) {
        if (!touched.has(job.id))
            jobs.set(job.id, {...jobs.get(job.id), ...job});
    }
    return jobs;
}

/** A job that is no more. */
export function forget(id) {
    const {jobs, order, selected, pinned} = now();
    jobs.delete(id);
    change({jobs, order: order.filter((other) => other !== id), selected: selected === id ? null : selected,
        pinned: pinned === id ? null : pinned});
}

/** Begin a request of the list; one that is under way ends. */
function begin() {
    request?.abort();
    request = new AbortController();
    touched.clear();
    change({loading: true});
    return request;
}

/** Load the list anew: at the start, with another filter, and after the connection was lost. */
export async function reload() {
    const mine = begin();
    try {
        const page = await api.list({...now().filter, limit: PAGE}, {signal: mine.signal});
        const jobs = keep(page);
        const newer = [...touched].filter((id) => jobs.has(id) && shown(jobs.get(id)) && !(id < page.jobs.at(-1)?.id));
        const order = [...new Set([...page.jobs.map((job) => job.id), ...newer])].sort().reverse();
        change({jobs, order, next: page.next, loading: false});
    } catch (error) {
        if (error.name === "AbortError")
            return;
        change({loading: false});
        if (error.status !== 401)
            say(error.message, true);
    }
}

/** Load the next page, if there is one. */
export async function more() {
    const {next, loading, filter} = now();
    if (!next || loading)
        return;
    const mine = begin();
    try {
        const page = await api.list({...filter, cursor: next, limit: 500}, {signal: mine.signal});
        const jobs = keep(page), {order} = now();
        const listed = new Set(order);
        const fresh = page.jobs.map((job) => job.id).filter((id) => !listed.has(id));
        change({jobs, order: [...order, ...fresh], next: page.next, loading: false});
    } catch (error) {
        if (error.name === "AbortError")
            return;
        change({loading: false});
        say(error.message, true);
    }
}

/** Show a job, or (with no job) another view. */
export function select(id, view = "jobs") {
    change({selected: id, view, flipped: false});
    remember();
}

/** Compare the selected job with another one from now on, or with none. */
export function pin(id) {
    change({pinned: id, flipped: false});
    remember();
}

function remember() {
    const {selected, pinned, view} = now();
    const words = view === "deliveries" ? view : [selected, pinned].filter(Boolean).join("/");
    if (location.hash.slice(1) !== words)
        history.replaceState(null, "", words ? "#" + words : location.pathname);
}

/** What the address names: #JOB, #JOB/PINNED or #deliveries. */
export function recall() {
    const [selected, pinned] = location.hash.slice(1).split("/");
    const view = selected === "deliveries" ? "deliveries" : "jobs";
    change({view, selected: view === "jobs" && selected || null, pinned: pinned || null});
}

async function attempt(action, done) {
    try {
        const value = await action();
        if (done)
            say(done);
        return value;
    } catch (error) {
        say(error.message, true);
        return null;
    }
}

export const nameOf = (job) => job.name || `Job ${job.id.slice(0, 10)}`;

/** Show a job that repeats another one with some parameters changed. */
export function repeated(job, created, parameters) {
    change({parents: new Map([...now().parents, [created.id, job.id]])});
    accept(created);
    select(created.id);
    const words = Object.entries(parameters).map(([name, value]) => `${name}=${value}`).join(", ");
    say(`${nameOf(job)} runs again${words && " with " + words}.`);
    return created;
}

/** Ask whether a job shall be deleted. */
export const doom = (job) => change({doomed: job});

export async function remove(job) {
    if (await attempt(() => api.remove(job.id), `${nameOf(job)} is deleted.`))
        forget(job.id);
}

/** What "run again" needs, for a button: whether the service has the scan, or the page its file. */
export const hasScan = (state, job) => job.scan_kept || state.held.has(job.id);

export const cancel = (job) => attempt(() => api.cancel(job.id), `${nameOf(job)} is being canceled.`);
