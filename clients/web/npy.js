// Arrays of NumPy: images, [frame][coil][z][y][x] or the last of these axes.

const HEADER = 10; // bytes before the description of an npy file of version 1
const READERS = {"<f4": Float32Array, "<f8": Float64Array, "<c8": Float32Array, "<c16": Float64Array,
    "<i2": Int16Array, "|u1": Uint8Array};
const SHARE = 0.995; // of the values lies below the upper end of a window
const SOME = 200000; // values that are looked at for it

function magnitudes(pairs) {
    return Float32Array.from({length: pairs.length / 2}, (_, i) => Math.hypot(pairs[2 * i], pairs[2 * i + 1]));
}

/** The first array of an npy file: {size: [x, y, z], frames, coils, values}; of complex values, their magnitudes. */
export function readNpy(buffer) {
    const view = new DataView(buffer);
    const long = view.getUint8(6) > 1; // version 2 has a longer length
    const length = long ? view.getUint32(8, true) : view.getUint16(8, true);
    const start = HEADER + (long ? 2 : 0);
    const head = new TextDecoder("latin1").decode(new Uint8Array(buffer, start, length));
    const kind = /'descr': *'([^']+)'/.exec(head)[1];
    const shape = /'shape': *\(([^)]*)\)/.exec(head)[1].split(",").filter((word) => word.trim()).map(Number);
    const Reader = READERS[kind];
    if (!Reader || shape.length > 5)
        throw new Error(`The page cannot show an array of ${shape.length} axes of type ${kind}.`);
    const complex = kind.startsWith("<c");
    const count = shape.reduce((product, n) => product * n, complex ? 2 : 1) * Reader.BYTES_PER_ELEMENT;
    const values = new Reader(buffer.slice(start + length, start + length + count));
    if (shape.length === 4) // frames of one coil
        shape.splice(1, 0, 1);
    const [frames, coils, z, y, x] = [...Array(5 - shape.length).fill(1), ...shape];
    return {size: [x, y, z], frames, coils, values: complex ? magnitudes(values) : values};
}

/** The window that shows most of some values, and their extent: {low, high, least, most}. */
export function extent(values) {
    const step = Math.max(1, Math.floor(values.length / SOME));
    const some = Float32Array.from({length: Math.floor(values.length / step)}, (_, i) => values[i * step]).sort();
    const at = (share) => some[Math.min(some.length - 1, Math.floor(share * some.length))] ?? 0;
    const low = Math.min(0, at(1 - SHARE)), high = at(SHARE);
    const above = high > low ? high : low + 1;
    return {low, high: above, least: Math.min(low, at(0)), most: Math.max(above, at(1))};
}
