// How a result is shown follows from the formats that it has, whatever its kind of job calls it.

const VOLUME = ["nii.gz"];
const SURFACE = ["ply", "stl", "obj", "gii", "mz3", "off", "vtk"];
const CURVE = ["csv", "json"];
const PICTURE = ["png"];
const ARRAY = ["npy"]; // with pictures beside it, an array is a volume

const first = (formats, wanted) => wanted.map((name) => formats.find(({format}) => format === name)).find(Boolean);

/** What a result (name, formats of GET /v1/jobs/ID/results) is: {form, format}. form: volume, surface, curve, picture, or
 * file: to be downloaded only. */
export function formOf(result) {
    const array = first(result.formats, PICTURE) ? ARRAY : [];
    for (const [form, wanted] of Object.entries({volume: VOLUME, surface: SURFACE, curve: CURVE, array, picture: PICTURE})) {
        const format = first(result.formats, wanted);
        if (format)
            return {form: form === "array" ? "volume" : form, format};
    }
    return {form: "file", format: null};
}

/** The format of a result by name, or undefined. */
export const formatOf = (result, name) => result.formats.find(({format}) => format === name);

/** The address of a small picture of a job's first result (of GET /v1/jobs/ID/results) that has one, or null. */
export function thumbnail(results) {
    const picture = results.map((result) => first(result.formats, PICTURE)).find(Boolean);
    return picture?.href ?? null;
}
