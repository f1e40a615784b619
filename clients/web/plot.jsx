// A result that is numbers: each column of a CSV file, or each array of a JSON document, as a curve over the first.
import {useEffect, useRef, useState} from "preact/hooks";
import * as api from "./api.js";

const LEGEND = 40; // pixels below the curves
const COLOURS = ["#2f9e8f", "#c9803a", "#6f7fd8", "#c65b7c", "#7a9a3a", "#8d6bb8"];

/** {names, columns} of a CSV text with a row of names. */
export function readCsv(words) {
    const lines = words.split(/\r?\n/).filter((line) => line && !line.startsWith("#"));
    const cells = lines.map((line) => line.split(",").map((cell) => cell.trim().replace(/^"(.*)"$/, "$1")));
    const named = cells[0].some((cell) => Number.isNaN(Number(cell)));
    const rows = named ? cells.slice(1) : cells;
    const names = named ? cells[0] : cells[0].map((_, i) => `column ${i + 1}`);
    const columns = names.map((_, i) => rows.map((row) => Number(row[i])));
    return columns.length > 1 ? {names, columns} : // numbers alone are drawn over their index
        {names: ["index", ...names], columns: [rows.map((_, i) => i), ...columns]};
}

/** {names, columns} of the arrays of numbers of one length in a JSON document, and the rest of it as facts. */
export function readJson(document) {
    const arrays = Object.entries(document).filter(([, value]) =>
        Array.isArray(value) && value.length > 1 && value.every((item) => typeof item === "number"));
    const length = arrays[0]?.[1].length;
    const chosen = arrays.filter(([, value]) => value.length === length);
    const plain = ["number", "string", "boolean"];
    const facts = Object.entries(document).filter(([, value]) => plain.includes(typeof value));
    return {names: chosen.map(([name]) => name), columns: chosen.map(([, value]) => value), facts};
}

async function load(format) {
    const response = await api.send("GET", format.href);
    const {default: uPlot} = await import("uplot");
    const data = format.format === "csv" ? {facts: [], ...readCsv(await response.text())} :
        readJson(await response.json());
    return {...data, uPlot};
}

function chart(element, {uPlot, names, columns}) {
    const style = getComputedStyle(element);
    const [ink, line] = ["--ink", "--line"].map((name) => style.getPropertyValue(name));
    const axis = {stroke: ink, grid: {stroke: line}, ticks: {stroke: line}};
    return new uPlot({
        width: element.clientWidth, height: element.clientHeight - LEGEND,
        scales: {x: {time: false}},
        axes: [{...axis, label: names[0]}, axis],
        series: [{label: names[0]},
            ...names.slice(1).map((label, i) => ({label, stroke: COLOURS[i % COLOURS.length], width: 1.5}))],
    }, columns, element);
}

export function Plot({result, format}) {
    const box = useRef(null);
    const [data, setData] = useState(null);
    const [problem, setProblem] = useState(null);
    useEffect(() => {
        load(format).then(setData, (error) => setProblem(error.message));
    }, [format.href]);
    useEffect(() => {
        if (!data || data.columns.length < 2)
            return undefined;
        const element = box.current;
        const plot = chart(element, data);
        const observer = new ResizeObserver(() =>
            plot.setSize({width: element.clientWidth, height: element.clientHeight - LEGEND}));
        observer.observe(element);
        return () => {
            observer.disconnect();
            plot.destroy();
        };
    }, [data]);
    return <div class="image">
        {(!data || data.columns.length > 1) &&
            <div ref={box} class="plot" role="img" aria-label={`Curves of ${result.name}`} />}
        {data?.facts.length > 0 && <table class="facts"><tbody>
            {data.facts.map(([name, value]) => <tr key={name}><th scope="row">{name}</th><td>{String(value)}</td></tr>)}
        </tbody></table>}
        {problem && <p class="problem">{problem}</p>}
    </div>;
}
