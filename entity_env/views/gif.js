// Writes GIF files (GIF89a): one palette of up to 255 colors for all pictures. The 256th color is
// transparent and stands for pixels that stay as they are, so pictures of a game compress well.

const SAME = 255;

// The palette of some pictures, each the RGBA bytes of a canvas: the most frequent colors, of those
// that differ in their upper 5 bits. `nearest` finds colors by these bits, and remembers.
function gifPalette(pictures) {
  const counts = new Uint32Array(1 << 15), votes = new Int32Array(1 << 15), shades = new Int32Array(1 << 15);
  for (const pixels of pictures) {
    for (let i = 0; i < pixels.length; i += 4) {
      const bin = gifBin(pixels, i), shade = pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2];
      counts[bin]++;
      // The majority of the exact colors, by the vote of Boyer and Moore.
      if (votes[bin] == 0) shades[bin] = shade;
      votes[bin] += shades[bin] == shade ? 1 : -1;
    }
  }
  const bins = [...counts.keys()].filter(bin => counts[bin]).sort((a, b) => counts[b] - counts[a]);
  const colors = bins.slice(0, SAME).map(bin => [shades[bin] >> 16, shades[bin] >> 8 & 255, shades[bin] & 255]);
  return {colors, nearest: new Int16Array(1 << 15).fill(-1)};
}

const gifBin = (pixels, i) => pixels[i] >> 3 << 10 | pixels[i + 1] >> 3 << 5 | pixels[i + 2] >> 3;

// The bytes before the first picture; the animation repeats without end.
function gifHeader(width, height, palette) {
  const table = new Uint8Array(768);
  palette.colors.forEach((color, i) => table.set(color, 3 * i));
  return [
    ..."GIF89a".split("").map(letter => letter.charCodeAt()),
    width & 255, width >> 8, height & 255, height >> 8, 0xf7, 0, 0, ...table,
    0x21, 0xff, 11, ..."NETSCAPE2.0".split("").map(letter => letter.charCodeAt()), 3, 1, 0, 0, 0,
  ];
}

// The bytes of one picture, shown for `delay` hundredths of a second; `before` has the pixels of
// the picture before it, or null.
function gifPicture(width, height, pixels, before, palette, delay) {
  const found = new Uint8Array(width * height);
  for (let i = 0; i < pixels.length; i += 4) {
    const isSame = before && pixels[i] == before[i] && pixels[i + 1] == before[i + 1] && pixels[i + 2] == before[i + 2];
    found[i / 4] = isSame ? SAME : gifColor(pixels, i, palette);
  }
  const bytes = [
    0x21, 0xf9, 4, 5, delay & 255, delay >> 8, SAME, 0,
    0x2c, 0, 0, 0, 0, width & 255, width >> 8, height & 255, height >> 8, 0, 8,
  ];
  const packed = gifPacked(found);
  for (let i = 0; i < packed.length; i += 255) {
    const block = packed.slice(i, i + 255);
    bytes.push(block.length, ...block);
  }
  bytes.push(0);
  return new Uint8Array(bytes);
}

// The index of the nearest color of the palette.
function gifColor(pixels, i, {colors, nearest}) {
  const bin = gifBin(pixels, i);
  if (nearest[bin] < 0) {
    const distances = colors.map(color => color.reduce((sum, each, k) => sum + (each - pixels[i + k]) ** 2, 0));
    nearest[bin] = distances.indexOf(Math.min(...distances));
  }
  return nearest[bin];
}

// Compresses bytes by LZW with codes of 9 to 12 bits.
function gifPacked(bytes) {
  const out = [], CLEAR = 256, END = 257;
  let buffer = 0, bits = 0, size = 9, next = 258, codes = new Map();
  const put = code => {
    buffer |= code << bits;
    for (bits += size; bits >= 8; bits -= 8) {
      out.push(buffer & 255);
      buffer >>>= 8;
    }
  };
  put(CLEAR);
  let prefix = bytes[0];
  for (const byte of bytes.subarray(1)) {
    const key = prefix << 8 | byte, known = codes.get(key);
    if (known != null) {
      prefix = known;
      continue;
    }
    put(prefix);
    prefix = byte;
    if (next == 4096) {
      put(CLEAR);
      size = 9;
      next = 258;
      codes = new Map();
    } else {
      // Readers learn a code one step later, so that its length counts from the next code.
      if (next >= 1 << size) size++;
      codes.set(key, next++);
    }
  }
  put(prefix);
  if (next >= 1 << size && size < 12) size++;
  put(END);
  if (bits) out.push(buffer & 255);
  return out;
}
