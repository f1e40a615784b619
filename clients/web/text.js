// Numbers, times and words as a person reads them.

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** 5142848 -> "5.1 MB" */
export function bytes(count) {
    let unit = 0;
    while (count >= 1000 && unit < UNITS.length - 1) {
        count /= 1000;
        unit++;
    }
    return `${unit === 0 || count >= 100 ? Math.round(count) : count.toFixed(1)} ${UNITS[unit]}`;
}

/** 0.0571 -> "57 ms", 75 -> "1 min 15 s" */
export function seconds(value) {
    if (value === null || value === undefined)
        return "";
    if (value < 0.001)
        return `${Math.max(0, Math.round(value * 1e6))} µs`;
    if (value < 0.9995)
        return `${Math.round(value * 1000)} ms`;
    if (value < 60)
        return `${value.toFixed(value < 10 ? 1 : 0)} s`;
    const whole = Math.round(value);
    if (whole < 3600)
        return `${Math.floor(whole / 60)} min ${whole % 60} s`;
    return `${Math.floor(whole / 3600)} h ${Math.floor(whole % 3600 / 60)} min`;
}

/** How long ago a time was, in one unit: "now", "12 s", "3 min", "5 h", "2 d". */
export function age(time, now) {
    const past = (now - Date.parse(time)) / 1000;
    if (past < 5)
        return "now";
    if (past < 60)
        return `${Math.floor(past)} s`;
    if (past < 3600)
        return `${Math.floor(past / 60)} min`;
    if (past < 86400)
        return `${Math.floor(past / 3600)} h`;
    return `${Math.floor(past / 86400)} d`;
}

/** Three significant digits, without an exponent where it is not needed. */
export function number(value) {
    if (!Number.isFinite(value))
        return String(value);
    const size = Math.abs(value);
    if (size !== 0 && (size < 1e-3 || size >= 1e5))
        return value.toExponential(2);
    return String(Number(value.toPrecision(3)));
}

export const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** A word of a shell, quoted where it has to be. */
export function quoted(word) {
    return /^[\w./:=@%+,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** A sentence with a capital and a full stop. */
export function sentence(words) {
    const text = words.charAt(0).toUpperCase() + words.slice(1);
    return /[.!?)]$/.test(text) ? text : text + ".";
}

/** A step of a running job: "Gridding, coil 3 of 8". */
export function step(job) {
    if (!job.step)
        return "";
    const {name, iteration, iterations, unit} = job.step;
    const what = name.charAt(0).toUpperCase() + name.slice(1);
    return unit && iterations ? `${what}, ${unit} ${iteration} of ${iterations}` : what;
}

const STATES = {queued: "Waiting", running: "Running", canceling: "Being canceled", succeeded: "Done", failed: "Failed",
    canceled: "Canceled"};

export const stateName = (state) => STATES[state] ?? state;
