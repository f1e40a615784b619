// The parameters of a job: those that differ from the defaults, all of them, and the form to run it again with changes.
import {useState} from "preact/hooks";
import * as text from "./text.js";
import {again} from "./upload.js";

/** The parameters of a job whose values are not the defaults. */
export function changed(job, kind) {
    return (kind?.parameters ?? []).filter(({name, default: usual}) =>
        name in job.parameters && String(job.parameters[name]) !== String(usual));
}

/** What a sentence proposes, such as "Pass traj_units=pixel or per_cm": [[name, value], ...]. */
export function proposals(sentences, kind) {
    const found = new Map();
    const known = new Map((kind?.parameters ?? []).map((parameter) => [parameter.name, parameter]));
    const named = /\b([a-z]\w*)=([\w.-]*\w)((?:(?:,| or|, or) [\w.-]*\w)*)/g;
    for (const [, name, first, others] of sentences.join(" ").matchAll(named)) {
        const parameter = known.get(name);
        for (const value of [first, ...(others.match(/[\w.-]*\w/g) ?? [])]) {
            const possible = parameter && (parameter.type !== "choice" || parameter.choices.includes(value));
            if (possible && (value === first || parameter.choices?.includes(value)))
                found.set(`${name}=${value}`, [name, value]);
        }
    }
    return [...found.values()];
}

function Field({parameter, value, onChange}) {
    const {name, type, choices, min, max} = parameter;
    const id = `parameter-${name}`;
    if (type === "choice")
        return <select id={id} value={value} onChange={(event) => onChange(event.target.value)}>
            {choices.map((choice) => <option key={choice}>{choice}</option>)}
        </select>;
    const words = choices ?? [];
    const numeric = type === "int" || type === "real";
    return <>
        <input id={id} value={value} list={words.length > 0 ? `${id}-choices` : undefined} autocomplete="off"
            placeholder={numeric ? `${min} to ${max}` : ""}
            inputMode={numeric && words.length === 0 ? "decimal" : undefined}
            onInput={(event) => onChange(event.target.value)} />
        {words.length > 0 && <datalist id={`${id}-choices`}>
            {words.map((word) => <option key={word} value={word} />)}
        </datalist>}
    </>;
}

/** The form of "same again with ...". */
function Form({job, kind, close}) {
    const [values, setValues] = useState(job.parameters);
    const [find, setFind] = useState("");
    const different = Object.entries(values).filter(([name, value]) => String(value) !== String(job.parameters[name]));
    const submit = async (event) => {
        event.preventDefault();
        if (await again(job, Object.fromEntries(different)))
            close();
    };
    const has = (words) => words.toLowerCase().includes(find.toLowerCase());
    const named = kind.parameters.filter(({name}) => has(name));
    const shown = [...named, ...kind.parameters.filter(({name, help}) => has(help) && !has(name))];
    return <form class="again" aria-label="Same again with other parameters" onSubmit={submit}
        onKeyDown={(event) => event.key === "Escape" && close()}>
        <div class="bar">
            <input type="search" placeholder="Find a parameter" aria-label="Find a parameter" value={find} autofocus
                ref={(element) => element && !element.dataset.met && (element.dataset.met = "yes", element.focus())}
                onInput={(event) => setFind(event.target.value)} />
            <button type="submit" class="main">
                {different.length > 0 ? `Run with ${text.plural(different.length, "change")}` :
                    "Run unchanged"}</button>
            <button type="button" onClick={close}>Close</button>
        </div>
        {shown.map((parameter) => <div key={parameter.name}
            class={`field ${different.some(([name]) => name === parameter.name) ? "different" : ""}`}>
            <label for={`parameter-${parameter.name}`}>{parameter.name}</label>
            <Field parameter={parameter} value={values[parameter.name]}
                onChange={(value) => setValues({...values, [parameter.name]: value})} />
            <p class="help">{parameter.help}</p>
        </div>)}
        {shown.length === 0 && <p class="quiet">No parameter matches.</p>}
    </form>;
}

/** The parameters of a job; `compared`: the job that it is compared with, or null. */
export function Parameters({job, kind, compared, editing, setEditing}) {
    const [all, setAll] = useState(false);
    const marked = new Set(changed(job, kind).map(({name}) => name));
    const differs = (name) => compared && String(compared.parameters[name]) !== String(job.parameters[name]);
    const names = Object.keys(job.parameters).filter((name) => all || marked.has(name) || differs(name));
    return <section class="block">
        <div class="bar">
            <h3>Parameters</h3>
            <button type="button" class="link" aria-expanded={all} onClick={() => setAll(!all)}>
                {all ? "Only changed ones" : `All ${Object.keys(job.parameters).length}`}</button>
        </div>
        {editing && kind ? <Form job={job} kind={kind} close={() => setEditing(false)} /> : <>
            {names.length === 0 && <p class="quiet">All have their default values.</p>}
            <table class="facts"><tbody>
                {names.map((name) => <tr key={name} class={marked.has(name) ? "changed" : ""}>
                    <th scope="row">{name}</th>
                    <td>{String(job.parameters[name]) || "(empty)"}
                        {marked.has(name) && <span class="mark" title="Not the default value"> changed</span>}
                        {differs(name) &&
                            <span class="mark"> (the other job: {String(compared.parameters[name])})</span>}</td>
                </tr>)}
            </tbody></table>
        </>}
    </section>;
}
