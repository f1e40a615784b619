// A result on the screen: an image in three planes with its sliders, a surface, a curve or a picture.
import {useEffect, useRef, useState} from "preact/hooks";
import {formOf, formatOf, preview} from "./forms.js";
import {nameOf} from "./jobs.js";
import {Plot} from "./plot.jsx";
import {change, now, useStore} from "./store.js";
import * as text from "./text.js";

const FRAME_MS = 120; // of a series that is played
const STEPS = 500;    // of the window's sliders

const LAYOUT_NAMES = {planes: "Three planes", axial: "Axial", coronal: "Coronal", sagittal: "Sagittal", render: "3-D"};

const hasWebGL = () => Boolean(document.createElement("canvas").getContext("webgl2"));

/** A viewer of volumes for this browser, and the formats that it reads, the best one first. */
async function createViewer(canvas, onPlace) {
    if (hasWebGL())
        return {
            viewer: await (await import("./volume.js")).Volume.create(canvas, onPlace),
            formats: ["nii.gz", "npy"], flat: false,
        };
    return {viewer: await (await import("./planes.js")).Planes.create(canvas, onPlace), formats: ["npy"], flat: true};
}

function Slider({label, value, least, most, step, say, onInput}) {
    return <label class="slider">
        <span>{label}</span>
        <input type="range" min={least} max={most} step={step ?? 1} value={value}
            onInput={(event) => onInput(Number(event.target.value))} />
        <output>{say}</output>
    </label>;
}

/** The address of a result in a format, if it has that. */
const address = (result, format) => formatOf(result, format)?.href;

/** The keys of the image: the crosshair's place, the frame, the flip. */
function imageKeys(event, viewer, act) {
    const moves = {ArrowLeft: [-1, 0, 0], ArrowRight: [1, 0, 0], ArrowUp: [0, 1, 0], ArrowDown: [0, -1, 0],
        PageUp: [0, 0, 1], PageDown: [0, 0, -1]};
    if (event.ctrlKey || event.metaKey || event.altKey)
        return;
    if (event.key in moves)
        viewer?.move(...moves[event.key]);
    else if (event.key === "," || event.key === ".")
        act.frame(event.key === "." ? 1 : -1);
    else
        return;
    event.preventDefault();
}

function Controls({about, view, set, other, flipped, flat, playing, setPlaying}) {
    const span = about.most - about.least || 1;
    const layouts = about.size[2] > 1 ? ["planes", "axial", "coronal", "sagittal", ...(flat ? [] : ["render"])] : [];
    return <div class="controls">
        {about.frames > 1 && <Slider label="Frame" least={0} most={about.frames - 1} value={view.frame}
            say={`${view.frame + 1} of ${about.frames}`} onInput={(frame) => set({frame})} />}
        {about.frames > 1 && <button type="button" aria-pressed={playing} onClick={() => setPlaying(!playing)}>
            {playing ? "Stop" : "Play"}</button>}
        {about.coils > 1 && <Slider label="Coil" least={0} most={about.coils - 1} value={view.coil}
            say={`${view.coil + 1} of ${about.coils}`} onInput={(coil) => set({coil})} />}
        <Slider label="Black" least={about.least} most={about.most} step={span / STEPS} value={view.low}
            say={text.number(view.low)} onInput={(low) => set({low, high: Math.max(view.high, low + span / STEPS)})} />
        <Slider label="White" least={about.least} most={about.most} step={span / STEPS} value={view.high}
            say={text.number(view.high)}
            onInput={(high) => set({high, low: Math.min(view.low, high - span / STEPS)})} />
        <button type="button" title="The window of the file"
            onClick={() => set({low: about.low, high: about.high})}>Reset window</button>
        <button type="button" aria-pressed={view.smooth} onClick={() => set({smooth: !view.smooth})}>Smooth</button>
        {layouts.length > 0 && <select aria-label="Planes" value={view.layout}
            onChange={(event) => set({layout: event.target.value})}>
            {layouts.map((name) => <option key={name} value={name}>{LAYOUT_NAMES[name]}</option>)}
        </select>}
        {other && <button type="button" class="flip" aria-pressed={flipped} title="F"
            onClick={() => change({flipped: !flipped})}>Flip (F)</button>}
    </div>;
}

/** The viewer on its canvas; null until it is there. A refusal is told in `problem`. */
function useViewer(canvas) {
    const [made, setMade] = useState(null);
    const [place, setPlace] = useState("");
    const [problem, setProblem] = useState(null);
    useEffect(() => {
        let gone = false, viewer = null;
        createViewer(canvas.current, setPlace).then((value) => {
            viewer = value.viewer;
            if (gone)
                viewer.close();
            else
                setMade(value);
        }, (error) => setProblem(error.message));
        return () => {
            gone = true;
            viewer?.close();
        };
    }, []);
    return {made, place, problem, setProblem};
}

let last = null; // what the window last showed: {size, view, place}

/** What the next image takes over from the last one of the same size: where the crosshair is and which planes are
 * shown, and while jobs are compared also window, frame and coil. */
function takenOver(found, compared) {
    if (!last || String(last.size) !== String(found.size))
        return {};
    const {layout, smooth, low, high, frame, coil} = last.view;
    return {layout, smooth, ...(compared ? {low, high, frame: Math.min(frame, found.frames - 1),
        coil: Math.min(coil, found.coils - 1)} : {})};
}

/** An image. `other`: the image that it is flipped with, {result, job}, or null. */
function Image({job, result, other}) {
    const canvas = useRef(null);
    const {made, place, problem, setProblem} = useViewer(canvas);
    const [about, setAbout] = useState(null);
    const [view, setView] = useState(null);
    const [drawn, setDrawn] = useState(null); // address of the image on the canvas
    const [playing, setPlaying] = useState(false);
    const begun = useRef(false); // the first image is shown
    const wantsFlip = useStore((state) => state.flipped);
    const flipped = wantsFlip && Boolean(other);
    const shown = flipped ? other.result : result;
    const format = made?.formats.find((name) => address(shown, name));
    const url = format && address(shown, format);
    const set = (members) => setView((before) => ({...before, ...members}));
    const turn = (by) => set({frame: (view.frame + by + about.frames) % about.frames});

    useEffect(() => {
        if (!made)
            return undefined;
        let gone = false;
        if (!url) {
            setProblem("This image has no format that the page can show in planes.");
            return undefined;
        }
        made.viewer.open(url, format).then((found) => {
            if (gone)
                return;
            setProblem(null);
            setAbout(found);
            // Two jobs are compared in one window: it is kept from the first.
            setView((before) => before ? {...before, frame: Math.min(before.frame, found.frames - 1),
                coil: Math.min(before.coil, found.coils - 1), url} :
                {frame: 0, coil: 0, low: found.low, high: found.high, layout: found.plane, smooth: false,
                    ...takenOver(found, Boolean(now().pinned)), url});
        }, (error) => !gone && setProblem(`The image cannot be shown: ${error.message}`));
        return () => { gone = true; };
    }, [made, url]);
    useEffect(() => {
        if (!view || !about || view.url !== url)
            return;
        if (!begun.current && String(last?.size) === String(about.size))
            made.viewer.setPlace(last.place);
        begun.current = true;
        made.viewer.show(url, view);
        setDrawn(url);
    }, [view?.url, view?.low, view?.high, view?.frame, view?.coil]);
    useEffect(() => view && made.viewer.layout(view.layout), [view?.layout]);
    useEffect(() => view && made.viewer.smooth(view.smooth), [view?.smooth]);
    useEffect(() => {
        if (made && view && about)
            last = {size: about.size, view, place: made.viewer.getPlace()};
    }, [made, view, about, place]);
    useEffect(() => {
        if (!playing || !about)
            return undefined;
        const next = (before) => ({...before, frame: (before.frame + 1) % about.frames});
        const timer = setInterval(() => setView(next), FRAME_MS);
        return () => clearInterval(timer);
    }, [playing, about]);

    const picture = preview(result);
    const name = nameOf(flipped ? other.job : job);
    // Another image is on the canvas until this one has come.
    const onCanvas = drawn === url ? (flipped ? other.job.id : job.id) : "";
    return <div class="image">
        <div class="stage" data-shown={onCanvas} data-frame={view?.frame}>
            {!view && picture && <img class="preview" src={picture} alt={`Image of ${nameOf(job)}`} />}
            <canvas ref={canvas} class={view ? "" : "waiting"} tabIndex={0} role="img"
                aria-label={`${result.name} of ${name}. Arrow keys and Page Up and Down move the crosshair.`}
                onKeyDown={(event) => imageKeys(event, made?.viewer, {frame: turn})} />
            {other && <span class="which">{name}</span>}
            {problem && <p class="problem">{problem}</p>}
        </div>
        <p class="place">{view ? `${about.size.join(" × ")}${place ? " · " + place : ""}` : "Opening the image."}</p>
        {view && <Controls about={about} view={view} set={set} other={other} flipped={flipped} flat={made.flat}
            playing={playing} setPlaying={setPlaying} />}
    </div>;
}

function Surface({result, format}) {
    const canvas = useRef(null);
    const {made, problem, setProblem} = useViewer(canvas);
    const [about, setAbout] = useState(null);
    useEffect(() => {
        if (made?.viewer.surface)
            made.viewer.surface(format.href, format.format).then(setAbout, (error) => setProblem(error.message));
        else if (made)
            setProblem("A surface needs WebGL 2, which this browser does not have. It can be downloaded.");
    }, [made]);
    return <div class="image">
        <div class="stage">
            <canvas ref={canvas} role="img" aria-label={`Surface ${result.name}`} />
            {problem && <p class="problem">{problem}</p>}
        </div>
        <p class="place">{about ? `${text.plural(about.triangles, "triangle")}, ${text.plural(about.points, "vertex")}`
            .replace("vertexs", "vertices") : "Opening the surface."}</p>
    </div>;
}

/** A result of a finished job by its form; `other` as for Image. */
export function Result({job, result, other}) {
    const {form, format} = formOf(result);
    if (form === "volume")
        return <Image key={result.name} job={job} result={result} other={other} />;
    if (form === "surface")
        return <Surface key={result.name} result={result} format={format} />;
    if (form === "curve")
        return <Plot key={result.name} result={result} format={format} />;
    if (form === "picture")
        return <div class="image"><div class="stage">
            <img class="preview" src={format.href} alt={`${result.name} of ${nameOf(job)}`} />
        </div></div>;
    return <p class="quiet none">{`${result.name} is a file to be downloaded.`}</p>;
}
