// Keeps the page up to date: one stream of events for all jobs, and the service's readiness.
import * as api from "./api.js";
import {reloadDeliveries, reloadDestinations, takeDeliveries} from "./deliveries.js";
import {advance, forget, reload, take} from "./jobs.js";
import {change, now} from "./store.js";

const RETRY_MS = 1000;      // after which a refused stream is asked for again
const READINESS_MS = 5000;  // between two looks at /readyz

async function look() {
    try {
        change({readiness: await api.readiness()});
    } catch {
        // The stream says that the connection is lost.
    }
}

function follow(source, type, action) {
    source.addEventListener(type, (event) => action(JSON.parse(event.data)));
}

function connect() {
    const source = new EventSource("/v1/events");
    source.onopen = () => {
        change({connection: "live"});
        look();
        reloadDestinations();
    };
    source.onerror = () => {
        if (now().session === "open")
            change({connection: "lost"});
        // Where the connection broke, the browser itself tries again and names the last event that it has seen. It does
        // not after a refusal.
        if (source.readyState === EventSource.CLOSED)
            setTimeout(retry, RETRY_MS);
    };
    // What the page shows is older than what the service remembers, or it shows nothing yet.
    follow(source, "reset", () => {
        reload();
        reloadDeliveries();
    });
    follow(source, "job", (job) => {
        take([job]);
        look();
    });
    follow(source, "progress", advance);
    follow(source, "deliveries", ({id, deliveries}) => takeDeliveries(id, deliveries));
    follow(source, "removed", ({id}) => {
        forget(id);
        takeDeliveries(id, []);
    });
}

/** Ask for the stream again, unless a token is asked for: a login may have ended, at a restart for one. */
async function retry() {
    await api.identity().catch(() => {});
    if (now().session === "open")
        connect();
}

/** Begin to follow the service. */
export function start() {
    reload();
    connect();
    look();
    api.identity().then((identity) => change({identity}), () => {});
    api.kinds().then((kinds) => change({kinds}), () => {});
    setInterval(look, READINESS_MS);
}
