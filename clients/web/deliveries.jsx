// Deliveries on the page: those of a job beside its image, and those of all jobs for the operator.
import {useEffect, useState} from "preact/hooks";
import * as api from "./api.js";
import {deliver, keyOf, listDeliveries, moreDeliveries} from "./deliveries.js";
import {nameOf, select} from "./jobs.js";
import {change, mayDeliver, useStore} from "./store.js";
import * as text from "./text.js";

const STATES = {dead: "Failed", pending: "Waiting", sending: "Being sent", delivered: "Delivered"};
const MARKS = {dead: "failed", pending: "queued", sending: "running", delivered: "succeeded"};

const timeOf = (time) => new Date(time).toLocaleString();

function State({delivery}) {
    return <span class={`state ${MARKS[delivery.state]}`}>{STATES[delivery.state]}</span>;
}

/** How often it was tried, and when it is tried next or ended. */
function attempts({attempts: count, next, ended}) {
    const last = count === 1 ? "at" : "the last at";
    const when = next ? `, the next at ${timeOf(next)}` : ended ? `, ${last} ${timeOf(ended)}` : "";
    return text.plural(count, "attempt") + when;
}

function SendAgain({delivery, name}) {
    const may = useStore(mayDeliver);
    if (!may || delivery.state === "sending")
        return null;
    const label = delivery.state === "pending" ? "Send now" : "Send again";
    return <button type="button" aria-label={`${label}: ${name} to ${delivery.destination}`}
        onClick={() => deliver(delivery.job, delivery.destination)}>{label}</button>;
}

/** A choice of the destinations that the job was not sent to yet. */
function SendTo({job, list}) {
    const destinations = useStore((state) => state.destinations);
    const may = useStore(mayDeliver);
    const [chosen, setChosen] = useState("");
    const left = destinations.filter(({name}) => !list.some(({destination}) => destination === name));
    if (!may || left.length === 0)
        return null;
    const name = left.some((one) => one.name === chosen) ? chosen : left[0].name;
    return <form class="send-to" onSubmit={(event) => {
        event.preventDefault();
        deliver(job.id, name);
    }}>
        <select aria-label="Destination" value={name} onChange={(event) => setChosen(event.target.value)}>
            {left.map((one) => <option key={one.name} value={one.name}>{one.name} ({one.type})</option>)}
        </select>
        <button type="submit">Send</button>
    </form>;
}

export function Deliveries({job, list}) {
    const destinations = useStore((state) => state.destinations);
    const may = useStore(mayDeliver);
    if (!api.FINAL.includes(job.state) || (list.length === 0 && !(may && destinations.length > 0)))
        return null;
    return <section class="block" aria-label="Deliveries">
        <h3>Deliveries</h3>
        {list.map((delivery) => <div key={delivery.destination} class="delivery" data-destination={delivery.destination}
            data-state={delivery.state}>
            <div class="bar"><strong>{delivery.destination}</strong><State delivery={delivery} /></div>
            {delivery.answer && <p class={delivery.state === "dead" ? "bad" : ""}>{delivery.answer}</p>}
            <div class="bar">
                <span class="quiet">{attempts(delivery)}</span>
                <SendAgain delivery={{...delivery, job: job.id}} name={nameOf(job)} />
            </div>
        </div>)}
        <SendTo job={job} list={list} />
    </section>;
}

/** The way to the deliveries of all jobs, and how many failed. */
export function DeliveriesLink() {
    const failed = useStore((state) => state.failed.size);
    const open = useStore((state) => state.view === "deliveries");
    return <button type="button" class={`link ${failed > 0 ? "bad" : ""}`} aria-pressed={open}
        onClick={() => select(null, open ? "jobs" : "deliveries")}>
        {failed > 0 ? `${failed.toLocaleString("en")} failed` : "None failed"}</button>;
}

function Row({delivery}) {
    const job = useStore((state) => state.jobs.get(delivery.job));
    const name = nameOf(job ?? {id: delivery.job});
    return <tr data-job={delivery.job} data-destination={delivery.destination} data-state={delivery.state}>
        <td><button type="button" class="link" onClick={() => select(delivery.job)}>{name}</button></td>
        <td>{delivery.destination}</td>
        <td><State delivery={delivery} /></td>
        <td>{delivery.answer}<span class="quiet">{attempts(delivery)}</span></td>
        <td><SendAgain delivery={delivery} name={name} /></td>
    </tr>;
}

/** The deliveries of all jobs, by state. */
export function Outbox() {
    const outbox = useStore((state) => state.outbox);
    useEffect(() => {
        listDeliveries("dead");
        return () => change({outbox: null});
    }, []);
    if (!outbox)
        return null;
    const {rows, state, next, loading} = outbox;
    return <section class="job outbox" aria-label="Deliveries">
        <div class="title">
            <h2>Deliveries</h2>
            <select aria-label="State of deliveries" value={state}
                onChange={(event) => listDeliveries(event.target.value)}>
                {Object.entries(STATES).map(([value, label]) => <option key={value} value={value}>{label}</option>)}
                <option value="">All states</option>
            </select>
        </div>
        <div class="deliveries" role="region" aria-label="List of deliveries" tabIndex={0} aria-busy={loading}>
            {rows.length > 0 && <table>
                <thead><tr>{["Job", "Destination", "State", "Last answer", "Action"].map((label) =>
                    <th key={label} scope="col">{label}</th>)}</tr></thead>
                <tbody>{rows.map((delivery) => <Row key={keyOf(delivery)} delivery={delivery} />)}</tbody>
            </table>}
            {rows.length === 0 && !loading && <p class="quiet none">No such deliveries.</p>}
            {next && <p class="none">
                <button type="button" disabled={loading} onClick={moreDeliveries}>Show more</button></p>}
        </div>
    </section>;
}
