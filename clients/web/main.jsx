import {render} from "preact";
import * as api from "./api.js";
import {App} from "./app.jsx";
import {recall} from "./jobs.js";
import {start} from "./live.js";
import {change} from "./store.js";
import "./style.css";

api.setOnUnauthorized(() => change({session: "asked"}));
recall();
addEventListener("hashchange", recall);
// A file that is dropped where none is taken does not replace the page.
for (const name of ["dragover", "drop"])
    addEventListener(name, (event) => event.preventDefault());
render(<App />, document.body);
start();
