// node build.mjs MODULES OUT: bundle the page into the folder OUT, from the packages in MODULES/node_modules. Each file
// is also written in compressed form (.br, .gz). licences.txt contains the licence of every package that contributes to
// the bundle, taken from licences/ here if the package itself has no licence text. All file names except index.html and
// licences.txt contain a hash of the contents.
import {createHash} from "node:crypto";
import {mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {dirname, join, resolve} from "node:path";
import {fileURLToPath} from "node:url";
import {brotliCompressSync, constants, gzipSync} from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const modules = resolve(process.argv[2], "node_modules");
const out = resolve(process.argv[3]);
const esbuild = createRequire(join(modules, "x.js"))("esbuild");

// Licences under which a package may be part of the page.
const ALLOWED = ["MIT", "ISC", "BSD-2-Clause", "BSD-3-Clause", "Apache-2.0"];

// Leave out the codecs of NiiVue's zarr reader, which the page does not use: each contains a wasm program.
const withoutCodecs = {
    name: "without-codecs",
    setup(build) {
        build.onResolve({filter: /^numcodecs\//}, ({path}) => ({path, namespace: "none"}));
        build.onLoad({filter: /.*/, namespace: "none"}, () => ({contents: "export default null"}));
    },
};

async function bundle() {
    const built = await esbuild.build({
        absWorkingDir: here,
        entryPoints: ["main.jsx"],
        nodePaths: [modules],
        outdir: out,
        write: false,
        bundle: true,
        splitting: true,
        format: "esm",
        target: "es2022",
        minify: true,
        metafile: true,
        legalComments: "none",
        entryNames: "[name]-[hash]",
        chunkNames: "[name]-[hash]",
        jsx: "automatic",
        jsxImportSource: "preact",
        logLevel: "warning",
        plugins: [withoutCodecs],
    });
    return {files: built.outputFiles.map((file) => ({path: file.path, bytes: Buffer.from(file.contents)})),
            inputs: Object.values(built.metafile.outputs).flatMap((output) => Object.entries(output.inputs)
                .filter(([, part]) => part.bytesInOutput > 0).map(([path]) => path))};
}

// The folder of the package that a file is in, or null for a file of ours.
function packageOf(path) {
    const found = /^(.*node_modules\/((@[^/]+\/)?[^/]+))\//.exec(resolve(here, path));
    return found && found[1];
}

function licences(inputs) {
    const folders = [...new Set(inputs.map(packageOf).filter(Boolean))].sort();
    return folders.map((folder) => {
        const about = JSON.parse(readFileSync(join(folder, "package.json")));
        const inside = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
        const file = inside ? join(folder, inside) : join(here, "licences", about.name.replace("/", "-") + ".txt");
        if (!ALLOWED.includes(about.license))
            throw new Error(`${about.name} has the licence ${about.license}, which the page must not contain.`);
        const text = readFileSync(file, "utf8").trim();
        return `${about.name} ${about.version}, licence ${about.license}\n\n${text}\n`;
    }).join(`\n${"-".repeat(78)}\n\n`);
}

function put(name, bytes) {
    writeFileSync(join(out, name), bytes);
    const quality = {[constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: bytes.length};
    writeFileSync(join(out, name + ".br"), brotliCompressSync(bytes, {params: quality}));
    writeFileSync(join(out, name + ".gz"), gzipSync(bytes, {level: 9}));
}

const {files, inputs} = await bundle();
rmSync(out, {recursive: true, force: true});
mkdirSync(out, {recursive: true});
const names = {};
for (const {path, bytes} of files) {
    const name = path.slice(out.length + 1);
    put(name, bytes);
    const entry = /^main-\w+\.(js|css)$/.exec(name);
    if (entry)
        names[entry[1]] = name;
}
const icon = readFileSync(join(here, "icon.svg"));
names.icon = `icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8).toUpperCase()}.svg`;
put(names.icon, icon);
const page = readFileSync(join(here, "index.html"), "utf8").replace(/@(js|css|icon)@/g, (_, what) => names[what]);
put("licences.txt", Buffer.from(licences(inputs)));
put("index.html", Buffer.from(page));
