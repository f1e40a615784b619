// The page's state, in one object; every change is made by change(), and components see it through useStore().
import {useEffect, useState} from "preact/hooks";

const state = {
    jobs: new Map(),      // by id: what the list and the stream say of each
    revision: 0,          // grows with every change of jobs
    order: [],            // ids that the list shows, newest first
    next: null,           // cursor of the list's next page
    loading: false,       // a page of the list is under way
    filter: {state: "", name: "", client: "", kind: "", since: ""},
    view: "jobs",         // or deliveries: of all jobs, in the place of a job
    selected: null,       // id of the job that is shown
    pinned: null,         // id of the job that it is compared with
    flipped: false,       // the pinned job's image is shown in the place of the selected one's
    kinds: [],
    destinations: [],     // that this person may use: {name, type}
    sent: new Map(),      // deliveries that the stream told, by the job's id
    failed: new Set(),    // keys of deliveries that were given up
    outbox: null,         // the list of deliveries on the screen: {state, rows, next, loading}
    reloads: 0,           // grows when what is on the screen may be outdated
    readiness: null,      // /readyz?verbose
    connection: "connecting", // or live, lost
    session: "open",      // or asked: a token is needed
    identity: null,       // whom the page speaks for: {tokens, role, client}
    uploads: [],          // see upload.js
    held: new Set(),      // ids of jobs whose files the page still has
    parents: new Map(),   // id of the job that was run again, by the id of its repetition
    wanted: null,         // a job that runs again as soon as its file is given: {job, parameters}
    doomed: null,         // the job whose deletion is to be confirmed
    notice: null,         // a sentence about what the person just did: {text, bad}
};
const listeners = new Set();

/** Change members of the state. */
export function change(members) {
    Object.assign(state, members);
    if ("jobs" in members)
        state.revision++;
    for (const listener of [...listeners])
        listener();
}

/** The state, to be read. */
export const now = () => state;

/** A value computed from the state; the component is drawn again when it becomes another one. */
export function useStore(choose) {
    const [, redraw] = useState(0);
    const chosen = choose(state);
    useEffect(() => {
        let last = chosen;
        const look = () => {
            const value = choose(state);
            if (value !== last) {
                last = value;
                redraw((count) => count + 1);
            }
        };
        listeners.add(look);
        look();
        return () => listeners.delete(look);
    });
    return chosen;
}

/** Say something to the person, in the page's status line. */
export const say = (text, bad = false) => change({notice: {text, bad}});

/** Whether the person's role lets it send, run again and delete. */
export const mayChange = (state) => ["submit", "admin"].includes(state.identity?.role);

/** Whether the person's role lets it send jobs to destinations. */
export const mayDeliver = (state) => state.identity?.role === "admin";
