// The frames of an animated PNG as pictures of their own: `await new Film(bytes).frame(3)` is a URL.
// Chunks and how a frame lies over the one before: PNG specification, third edition, "APNG: frame-based animation".
// The first picture of the course's files is the still, which is no frame of the animation.

export class Film {
  constructor(bytes) {
    this.bytes = bytes;
    this.frames = [];
    this.urls = [];
    this.read();
    this.at = -1; // the frame that the canvas shows
    this.last = Promise.resolve();
  }

  get count() {
    return this.frames.length;
  }

  // One after the other, for they share the canvas.
  frame(number) {
    this.last = this.last.then(() => this.urls[number] ?? this.paint(number));
    return this.last;
  }

  close() {
    this.urls.forEach((url) => URL.revokeObjectURL(url));
    this.urls = [];
  }

  async paint(number) {
    this.canvas ??= Object.assign(document.createElement("canvas"), this.size);
    const context = this.canvas.getContext("2d");
    if (number < this.at) {
      context.clearRect(0, 0, this.canvas.width, this.canvas.height);
      this.at = -1;
    }
    while (this.at < number) {
      const { left, top, width, height, data } = this.frames[++this.at];
      const picture = await createImageBitmap(this.file(width, height, data));
      context.drawImage(picture, left, top);
      picture.close();
    }
    const blob = await new Promise((done) => this.canvas.toBlob(done));
    return (this.urls[number] = URL.createObjectURL(blob));
  }

  read() {
    const view = new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.byteLength);
    this.shared = []; // the palette and what of it is clear, as chunks of the file
    for (let at = 8; at < this.bytes.length; ) {
      const length = view.getUint32(at);
      const kind = String.fromCharCode(...this.bytes.subarray(at + 4, at + 8));
      const content = this.bytes.subarray(at + 8, at + 8 + length);
      if (kind === "IHDR") this.head = content;
      if (kind === "PLTE" || kind === "tRNS") this.shared.push(this.bytes.subarray(at, at + 12 + length));
      if (kind === "fcTL") this.frames.push(control(view, at + 8));
      if (kind === "fdAT") this.frames.at(-1).data.push(content.subarray(4)); // after the number in the sequence
      at += 12 + length;
    }
    const head = new DataView(this.head.buffer, this.head.byteOffset);
    this.size = { width: head.getUint32(0), height: head.getUint32(4) };
  }

  // One frame as a PNG file of its own.
  file(width, height, data) {
    const head = this.head.slice();
    const view = new DataView(head.buffer);
    view.setUint32(0, width);
    view.setUint32(4, height);
    const pixels = data.map((content) => chunk("IDAT", content));
    const parts = [this.bytes.subarray(0, 8), chunk("IHDR", head), ...this.shared, ...pixels, chunk("IEND", new Uint8Array())];
    return new Blob(parts, { type: "image/png" });
  }
}

function control(view, at) {
  const [width, height, left, top] = [4, 8, 12, 16].map((place) => view.getUint32(at + place));
  return { width, height, left, top, data: [] };
}

function chunk(kind, content) {
  const bytes = new Uint8Array(content.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, content.length);
  bytes.set([...kind].map((letter) => letter.charCodeAt()), 4);
  bytes.set(content, 8);
  view.setUint32(content.length + 8, checksum(bytes.subarray(4, content.length + 8)));
  return bytes;
}

const TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; bit++) byte = byte & 1 ? (byte >>> 1) ^ 0xedb88320 : byte >>> 1;
  return byte;
});

function checksum(bytes) {
  let sum = 0xffffffff;
  for (const byte of bytes) sum = TABLE[(sum ^ byte) & 255] ^ (sum >>> 8);
  return ~sum >>> 0;
}
