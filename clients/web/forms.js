// How a result is shown follows from the formats that it has, whatever its kind of job calls it.

const VOLUME = ["nii.gz", "npy"];
const SURFACE = ["ply", "stl", "obj", "gii", "mz3", "off", "vtk"];
const CURVE = ["csv", "json"];
const PICTURE = ["png"];
const SMALL = 80;    // pixels across the picture of a row, at twice its size on the page
const PREVIEW = 768; // of what is shown until the viewer has loaded

const first = (formats, wanted) => wanted.map((name) => formats.find(({format}) => format === name)).find(Boolean);

/** What a result (name, views, formats of GET /v1/jobs/ID/results) is: {form, format}. form: volume (it has slices),
 * surface, curve, picture, or file: to be downloaded only. */
export function formOf(result) {
    const forms = {volume: result.views ? VOLUME : [], surface: SURFACE, curve: CURVE, picture: PICTURE};
    for (const [form, wanted] of Object.entries(forms)) {
        const format = first(result.formats, wanted);
        if (format)
            return {form, format};
    }
    return {form: "file", format: null};
}

/** The format of a result by name, or undefined. */
export const formatOf = (result, name) => result.formats.find(({format}) => format === name);

/** The address of a picture of a result, its middle slice if it has slices; null: there is none. */
function pictureOf(result, size) {
    const picture = first(result.formats, PICTURE);
    return picture ? `${picture.href}${result.views ? `&size=${size}` : ""}` : null;
}

export const preview = (result) => pictureOf(result, PREVIEW);

/** A small picture of a job's first result (of GET /v1/jobs/ID/results) that has one, or null. */
export const thumbnail = (results) => results.map((result) => pictureOf(result, SMALL)).find(Boolean) ?? null;
