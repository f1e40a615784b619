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
render(<App />, document.body);
start();
