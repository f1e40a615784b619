// The three planes of a volume, drawn by NiiVue (WebGL 2). Loaded when the first image is shown.
import {send} from "./api.js";
import {extent, readNpy} from "./npy.js";
import {NVImage, NVMesh, Niivue, SLICE_TYPE, SHOW_RENDER, MULTIPLANAR_TYPE, DRAG_MODE} from "@niivue/niivue";

const LAYOUTS = {planes: SLICE_TYPE.MULTIPLANAR, axial: SLICE_TYPE.AXIAL, coronal: SLICE_TYPE.CORONAL,
    sagittal: SLICE_TYPE.SAGITTAL, render: SLICE_TYPE.RENDER};
const CROSSHAIR = 1 / 250; // width of the crosshair in lengths of the volume's longest side

/** The window that shows a volume, the file's or of its values, and the extent of these. */
function windowOf(image) {
    const {cal_min: low, cal_max: high} = image.hdr;
    const found = extent(image.img);
    const [least, most] = [image.global_min ?? found.least, image.global_max ?? found.most];
    return high > low ? {low, high, least: Math.min(low, least), most: Math.max(high, most)} :
        {...found, least: Math.min(found.low, least), most: Math.max(found.high, most)};
}

const FLOAT32 = 16; // of NIfTI's data types

/** An array as an image of NiiVue, with voxels of 1 mm: frames before coils, as NIfTI has them. */
async function imageOfArray(url) {
    const {size, frames, coils, values} = readNpy(await (await send("GET", url)).arrayBuffer());
    const one = size[0] * size[1] * size[2];
    const sorted = new Float32Array(values.length);
    for (let frame = 0; frame < frames; frame++) {
        for (let coil = 0; coil < coils; coil++) {
            const from = (frame * coils + coil) * one;
            sorted.set(values.subarray(from, from + one), (coil * frames + frame) * one);
        }
    }
    const affine = [1, 0, 0, -size[0] / 2, 0, 1, 0, -size[1] / 2, 0, 0, 1, -size[2] / 2, 0, 0, 0, 1];
    const bytes = new Uint8Array(sorted.buffer);
    const file = NVImage.createNiftiArray([...size, frames, coils], [1, 1, 1, 1, 1], affine, FLOAT32, bytes);
    return NVImage.loadFromUrl({url, buffer: file.buffer, name: "image.nii", colormap: "gray"});
}

/** The plane in which a single slice lies. */
function planeOf(image) {
    const thickness = (image.permRAS ?? [1, 2, 3]).findIndex((axis) => Math.abs(axis) === 3);
    return ["sagittal", "coronal", "axial"][thickness] ?? "axial";
}

export class Volume {
    /** A viewer on a canvas; `onPlace` is called with a text whenever the crosshair has moved. */
    static async create(canvas, onPlace) {
        const viewer = new Volume();
        viewer.view = new Niivue({
            backColor: [0, 0, 0, 1], crosshairColor: [0.37, 0.83, 0.77, 0.7], fontColor: [0.6, 0.68, 0.7, 1],
            fontMinPx: 13, fontSizeScaling: 0.3, loadingText: "", logLevel: "error",
            dragAndDropEnabled: false, dragMode: DRAG_MODE.contrast, isResizeCanvas: true,
            multiplanarPadPixels: 2, multiplanarShowRender: SHOW_RENDER.NEVER, multiplanarLayout: MULTIPLANAR_TYPE.AUTO,
            isRadiologicalConvention: true, scrollRequiresFocus: false, viewModeHotKey: "", clipPlaneHotKey: "",
            cycleClipPlaneHotKey: "", trustCalMinMax: true,
        });
        viewer.images = new Map();
        viewer.view.onLocationChange = ({string}) => onPlace(string);
        await viewer.view.attachToCanvas(canvas, false);
        return viewer;
    }

    /** Load an image, or take it from those that are loaded; what the controls need to know of it. */
    async open(url, format) {
        if (!this.images.has(url)) {
            // The name tells NiiVue the format: the address ends in a query.
            const image = format === "npy" ? await imageOfArray(url) :
                await NVImage.loadFromUrl({url, name: "image.nii.gz", colormap: "gray"});
            const dims = image.hdr.dims;
            this.images.set(url, {image, about: {
                size: [dims[1], dims[2], dims[3]], frames: Math.max(1, dims[4]), coils: Math.max(1, dims[5] ?? 1),
                ...windowOf(image), oriented: format !== "npy", plane: dims[3] > 1 ? "planes" : planeOf(image),
            }});
        }
        return this.images.get(url).about;
    }

    /** Show an image that is open, at the place of the crosshair, in the window {low, high}. */
    show(url, {low, high, frame, coil}) {
        const {image, about} = this.images.get(url);
        const {view} = this;
        const place = view.scene.crosshairPos.slice();
        if (view.volumes[0] !== image) {
            for (const volume of [...view.volumes])
                view.removeVolume(volume);
            image.cal_min = low;
            image.cal_max = high;
            view.addVolume(image);
            view.scene.crosshairPos = place;
        }
        image.cal_min = low;
        image.cal_max = high;
        const number = Math.min(frame, about.frames - 1) + about.frames * Math.min(coil, about.coils - 1);
        if (image.frame4D !== number)
            view.setFrame4D(image.id, number);
        else
            view.updateGLVolume();
        view.opts.isOrientationTextVisible = about.oriented; // an array does not tell where a patient's right is
        view.setCrosshairWidth(about.plane === "planes" ? CROSSHAIR * Math.max(...about.size) : 0);
        view.drawScene();
        view.createOnLocationChange();
    }

    layout(name) {
        this.view.setSliceType(LAYOUTS[name]);
    }

    /** Move the crosshair by voxels. */
    move(x, y, z) {
        this.view.moveCrosshairInVox(x, y, z);
    }

    /** Where the crosshair is, for setPlace() of an image of the same size. */
    getPlace() {
        return [...this.view.scene.crosshairPos];
    }

    setPlace(place) {
        this.view.scene.crosshairPos = place;
    }

    smooth(on) {
        this.view.setInterpolation(!on);
    }

    /** Show a surface instead of a volume. */
    async surface(url, format) {
        const {view} = this;
        const look = {name: `surface.${format}`, gl: view.gl, rgba255: [120, 205, 195, 255]};
        const mesh = await NVMesh.loadFromUrl({url, ...look});
        view.addMesh(mesh);
        view.setSliceType(SLICE_TYPE.RENDER);
        return {points: mesh.pts.length / 3, triangles: mesh.tris ? mesh.tris.length / 3 : 0};
    }

    close() {
        this.view.cleanup();
        this.view.gl?.getExtension("WEBGL_lose_context")?.loseContext();
    }
}
