// The token that the service asks for. It is exchanged for a cookie that scripts cannot read.
import {useState} from "preact/hooks";
import * as api from "./api.js";

export function Login() {
    const [problem, setProblem] = useState(null);
    const submit = async (event) => {
        event.preventDefault();
        const token = new FormData(event.target).get("token").trim();
        try {
            await api.login(token);
            location.reload();
        } catch (error) {
            setProblem(error.message);
        }
    };
    return <main class="login">
        <h1>mrirecond</h1>
        <form onSubmit={submit}>
            <label for="token">Token</label>
            <input id="token" name="token" type="password" required autocomplete="current-password" autofocus />
            <button type="submit" class="main">Sign in</button>
            {problem && <p class="problem" role="alert">{problem}</p>}
            <p class="quiet">The administrator makes tokens with mrirecond --new-token.</p>
        </form>
    </main>;
}
