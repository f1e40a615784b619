// Requests to the service. A refusal is thrown as a Problem, whose message is the sentence of the problem document.

export const FINAL = ["succeeded", "failed", "canceled"];

export class Problem extends Error {
    constructor(message, status = 0, code = "") {
        super(message);
        this.status = status;
        this.code = code;
    }
}

/** A header required with the login cookie for requests that change something: pages of other sites cannot send it. */
export const OWN = {"X-Requested-With": "mrirecond"};

let onUnauthorized = () => {};

/** Call `listener` whenever an answer is 401. */
export function setOnUnauthorized(listener) {
    onUnauthorized = listener;
}

async function problemOf(response) {
    let document = {};
    try {
        document = await response.json();
    } catch {
        // Not from the service itself, such as a proxy's page.
    }
    return new Problem(document.detail ?? `The service answered with status ${response.status}.`, response.status,
        document.code ?? "");
}

/** A request; the response, whose status is 2xx. */
export async function send(method, path, {headers, ...options} = {}) {
    let response;
    try {
        response = await fetch(path, {method, headers: method === "GET" ? headers : {...OWN, ...headers}, ...options});
    } catch (error) {
        if (error.name === "AbortError")
            throw error;
        throw new Problem("The service does not answer. The page tries again by itself.");
    }
    if (response.status === 401)
        onUnauthorized();
    if (!response.ok)
        throw await problemOf(response);
    return response;
}

export async function get(path, options) {
    return (await send("GET", path, options)).json();
}

/** /readyz is a document also where the service is not ready (503). */
export async function readiness() {
    const response = await fetch("/readyz?verbose");
    return response.json();
}

export const job = (id) => get(`/v1/jobs/${id}`);
export const results = async (id) => (await get(`/v1/jobs/${id}/results`)).results;
export const kinds = async () => (await get("/v1/kinds")).kinds;
export const remove = (id) => send("DELETE", `/v1/jobs/${id}`);
export const cancel = (id) => send("POST", `/v1/jobs/${id}/cancel`);

/** Run a job again with some parameters changed; the new job. */
export async function resubmit(id, parameters) {
    const query = new URLSearchParams(parameters).toString();
    return (await send("POST", `/v1/jobs/${id}/resubmit${query && "?" + query}`)).json();
}

/** One page of the list: {jobs, next}. */
export function list({state, client, name, kind, since, cursor, fields = "short", limit = 100}, options) {
    const query = new URLSearchParams();
    const words = {state, client: client && `${client}*`, name, kind, since, cursor, fields, limit};
    for (const [key, value] of Object.entries(words)) {
        if (value)
            query.set(key, value);
    }
    return get(`/v1/jobs?${query}`, options);
}

/** One page of the list of deliveries: {deliveries, next}. */
export function deliveries({state, cursor, limit}) {
    const query = new URLSearchParams();
    for (const [key, value] of Object.entries({state, cursor, limit})) {
        if (value)
            query.set(key, value);
    }
    return get(`/v1/deliveries?${query}`);
}

export const destinations = async () => (await get("/v1/destinations")).destinations;

/** Send a job to a destination. */
export const deliver = (id, destination) =>
    send("POST", `/v1/jobs/${id}/deliveries/${encodeURIComponent(destination)}`);

/** Exchange a token for the session's cookie. */
export const login = (token) => send("POST", "/v1/login", {headers: {Authorization: `Bearer ${token}`}});
export const logout = () => send("DELETE", "/v1/login");

/** Who the page speaks for: {tokens, role, client, expires}. */
export const identity = () => get("/v1/login");
