// Deliveries of ended jobs to other services: what the stream tells of them, lists of them by state, and sending.
import * as api from "./api.js";
import {change, now, say} from "./store.js";

const PAGE = 100;
const COUNTED = 500;        // failed ones are counted up to here

// Jobs whose deliveries the stream told while a page, or the count of failed ones, was under way: these are older.
const touched = new Set();
const recounted = new Set();

const of = (job, list) => list.map((delivery) => ({...delivery, job}));
export const keyOf = ({job, destination}) => `${job}/${destination}`;

/** The rows of a list with those of one job replaced. Rows keep their places; those that are new come first. */
function merged({rows, state}, job, list) {
    const admitted = new Map(of(job, list).filter((delivery) => !state || delivery.state === state)
        .map((delivery) => [keyOf(delivery), delivery]));
    const kept = rows.filter((row) => row.job !== job || admitted.has(keyOf(row)))
        .map((row) => admitted.get(keyOf(row)) ?? row);
    const listed = new Set(kept.map(keyOf));
    return [...[...admitted.values()].filter((delivery) => !listed.has(keyOf(delivery))), ...kept];
}

/** All deliveries of a job, as they are now; none, when it was removed. */
export function takeDeliveries(job, list) {
    const {sent, failed, outbox} = now();
    touched.add(job);
    recounted.add(job);
    sent.set(job, list);
    const others = [...failed].filter((key) => !key.startsWith(job + "/"));
    const own = of(job, list).filter(({state}) => state === "dead").map(keyOf);
    change({sent, failed: new Set([...others, ...own]),
        outbox: outbox && {...outbox, rows: merged(outbox, job, list)}});
}

async function page(state, cursor) {
    touched.clear();
    const {deliveries, next} = await api.deliveries({state, cursor, limit: PAGE});
    return {rows: deliveries, next};
}

/** Rows of a page, with what the stream told meanwhile. */
function current(outbox) {
    let {rows} = outbox;
    for (const job of touched)
        rows = merged({...outbox, rows}, job, now().sent.get(job) ?? []);
    return {...outbox, rows};
}

/** Show the deliveries of a state ("": of any). */
export async function listDeliveries(state) {
    change({outbox: {state, rows: [], next: null, loading: true}});
    try {
        const {rows, next} = await page(state, null);
        if (now().outbox?.state === state)
            change({outbox: current({state, rows, next, loading: false})});
    } catch (error) {
        change({outbox: {state, rows: [], next: null, loading: false}});
        say(error.message, true);
    }
}

export async function moreDeliveries() {
    const {outbox} = now();
    change({outbox: {...outbox, loading: true}});
    try {
        const {rows, next} = await page(outbox.state, outbox.next);
        const listed = new Set(outbox.rows.map(keyOf));
        const all = [...outbox.rows, ...rows.filter((row) => !listed.has(keyOf(row)))];
        if (now().outbox?.state === outbox.state)
            change({outbox: current({...outbox, rows: all, next, loading: false})});
    } catch (error) {
        change({outbox: {...outbox, loading: false}});
        say(error.message, true);
    }
}

/** Load everything again: at the start, and after the connection was lost. */
export async function reloadDeliveries() {
    const {outbox, reloads} = now();
    change({sent: new Map(), reloads: reloads + 1});
    if (outbox)
        listDeliveries(outbox.state);
    try {
        recounted.clear();
        const {deliveries} = await api.deliveries({state: "dead", limit: COUNTED});
        change({failed: new Set(deliveries.filter(({job}) => !recounted.has(job)).map(keyOf)
            .concat([...now().failed].filter((key) => recounted.has(key.split("/")[0]))))});
    } catch {
        // The stream says that the connection is lost.
    }
}

export const reloadDestinations = () =>
    api.destinations().then((destinations) => change({destinations}), () => {});

/** Send a job to a destination: again, or for the first time. The stream tells what becomes of it, perhaps before the
 * service's answer arrives. */
export async function deliver(job, destination) {
    try {
        await api.deliver(job, destination);
        say(`The job is sent to ${destination}.`);
    } catch (error) {
        say(error.message, true);
    }
}
