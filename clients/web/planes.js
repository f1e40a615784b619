// The three planes of a volume on a 2-D canvas, for browsers without WebGL 2: the same as volume.js, from an npy file.
import {extent, readNpy} from "./npy.js";

export class Planes {
    static async create(canvas, onPlace) {
        const viewer = new Planes();
        Object.assign(viewer, {canvas, onPlace, images: new Map(), place: null, shown: null, name: "planes"});
        viewer.observer = new ResizeObserver(() => viewer.draw());
        viewer.observer.observe(canvas);
        canvas.addEventListener("pointerdown", (event) => viewer.point(event));
        return viewer;
    }

    async open(url) {
        if (!this.images.has(url)) {
            const response = await fetch(url);
            if (!response.ok)
                throw new Error((await response.json()).detail);
            const {size, frames, coils, values} = readNpy(await response.arrayBuffer());
            this.images.set(url, {values, about: {size, frames, coils, ...extent(values),
                plane: size[2] > 1 ? "planes" : "axial"}});
        }
        return this.images.get(url).about;
    }

    show(url, settings) {
        this.shown = {...this.images.get(url), settings};
        const {size} = this.shown.about;
        this.place = (this.place ?? size.map((n) => n >> 1)).map((at, axis) => Math.min(at, size[axis] - 1));
        this.draw();
    }

    layout(name) {
        this.name = name;
        this.draw();
    }

    move(...by) {
        if (!this.shown)
            return;
        const {size} = this.shown.about;
        this.place = this.place.map((at, axis) => Math.max(0, Math.min(size[axis] - 1, at + by[axis])));
        this.draw();
    }

    /** Where the crosshair is, for setPlace() of an image of the same size. */
    getPlace() {
        return this.place;
    }

    setPlace(place) {
        this.place = place && [...place];
    }

    smooth(on) {
        this.smoothed = on;
        this.draw();
    }

    /** The planes that are drawn: the axes across and down of each, and its box on the canvas. */
    boxes() {
        const planes = {axial: [0, 1], coronal: [0, 2], sagittal: [1, 2]};
        const chosen = this.name === "planes" ? Object.values(planes) : [planes[this.name] ?? planes.axial];
        const width = this.canvas.width / chosen.length;
        return chosen.map(([across, down], i) => {
            const {size} = this.shown.about;
            const scale = Math.min(width / size[across], this.canvas.height / size[down]);
            const w = scale * size[across], h = scale * size[down];
            return {across, down, scale, x: i * width + (width - w) / 2, y: (this.canvas.height - h) / 2, w, h};
        });
    }

    /** One plane as grey values. */
    slice({across, down}) {
        const {values, about: {size, frames, coils}, settings: {low, high, frame, coil}} = this.shown;
        const [nx, ny, nz] = size;
        const start = (Math.min(frame, frames - 1) * coils + Math.min(coil, coils - 1)) * nx * ny * nz;
        const stride = [1, nx, nx * ny];
        const picture = new ImageData(size[across], size[down]);
        const fixed = [0, 1, 2].find((axis) => axis !== across && axis !== down);
        const base = start + this.place[fixed] * stride[fixed];
        for (let v = 0, at = 0; v < size[down]; v++) {
            for (let u = 0; u < size[across]; u++, at += 4) {
                const value = values[base + u * stride[across] + v * stride[down]];
                picture.data.fill(255 * (value - low) / (high - low), at, at + 3);
                picture.data[at + 3] = 255;
            }
        }
        return picture;
    }

    draw() {
        if (!this.shown)
            return;
        const {canvas} = this;
        canvas.width = canvas.clientWidth * devicePixelRatio;
        canvas.height = canvas.clientHeight * devicePixelRatio;
        const context = canvas.getContext("2d");
        context.imageSmoothingEnabled = Boolean(this.smoothed);
        const scratch = document.createElement("canvas");
        for (const box of this.boxes()) {
            const picture = this.slice(box);
            scratch.width = picture.width;
            scratch.height = picture.height;
            scratch.getContext("2d").putImageData(picture, 0, 0);
            context.drawImage(scratch, box.x, box.y, box.w, box.h);
            context.strokeStyle = "rgba(95, 211, 196, 0.6)";
            context.beginPath();
            const x = box.x + (this.place[box.across] + 0.5) * box.scale;
            const y = box.y + (this.place[box.down] + 0.5) * box.scale;
            context.moveTo(x, box.y);
            context.lineTo(x, box.y + box.h);
            context.moveTo(box.x, y);
            context.lineTo(box.x + box.w, y);
            context.stroke();
        }
        this.onPlace(`Voxel ${this.place.join(", ")}`);
    }

    /** Take the place under the pointer. */
    point(event) {
        if (!this.shown)
            return;
        const x = event.offsetX * devicePixelRatio, y = event.offsetY * devicePixelRatio;
        const box = this.boxes().find((one) => x >= one.x && x < one.x + one.w && y >= one.y && y < one.y + one.h);
        if (!box)
            return;
        this.place[box.across] = Math.floor((x - box.x) / box.scale);
        this.place[box.down] = Math.floor((y - box.y) / box.scale);
        this.draw();
    }

    close() {
        this.observer.disconnect();
    }
}
