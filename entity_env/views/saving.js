// What a person takes from the player: links, pictures and GIFs.

const MOST_GIF_PICTURES = 300, GIF_PIXELS = 480, PNG_PIXELS = 1080;
let isCanceled = false;

function notify(...parts) {
  $("notice").replaceChildren(...parts);
}

function notifyBriefly(text) {
  notify(text);
  setTimeout(() => $("notice").textContent == text && notify(), 3000);
}

async function copyLink() {
  const link = location.href.split("#")[0] + "#" + now;
  try {
    await navigator.clipboard.writeText(link);
    notifyBriefly("The link is copied.");
  } catch {
    const field = make("input"), close = make("button", "Close");
    field.value = link;
    field.readOnly = true;
    field.ariaLabel = "link to this step";
    close.onclick = () => notify();
    notify("Copy this:", field, close);
    field.select();
  }
}

function download(blob, ending) {
  const link = make("a");
  link.href = URL.createObjectURL(blob);
  link.download = data.title.split(":")[0].replace(/\W+/g, "_") + ending;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// A new canvas with the pixels that a picture has in a file.
function newCanvas(pixels) {
  const canvas = make("canvas");
  return [canvas, () => fitCanvas(canvas, data.size, [pixels, pixels], 1)];
}

// Waits for the images of all pictures; those that are broken are left out.
async function loadImages() {
  const shapes = [...data.ground, ...data.shapes].filter(shape => shape[0] == "i");
  await Promise.all(shapes.map(shape => pictureOf(shape, render).decode().catch(() => null)));
}

async function savePng() {
  await loadImages();
  const [canvas, clear] = newCanvas(PNG_PIXELS);
  paintPicture(clear(), now);
  canvas.toBlob(blob => download(blob, "-" + now + ".png"));
}

// The pictures of a GIF: those of the side, evenly chosen if there are too many.
function gifIndices() {
  const all = [...frames.keys()].filter(i => side == null || frames[i].g == side);
  const stride = Math.ceil(all.length / MOST_GIF_PICTURES);
  return all.filter((_, i) => i % stride == 0 || i == all.length - 1);
}

async function saveGif() {
  const bar = make("progress"), cancel = make("button", "Cancel");
  isCanceled = false;
  cancel.onclick = () => isCanceled = true;
  bar.ariaLabel = "progress";
  notify("GIF", bar, cancel);
  const blob = await gifBlob(share => bar.value = share);
  notify();
  if (blob) download(blob, ".gif");
}

// All pictures as a GIF; null if it is canceled. Gives the page time after every picture.
async function gifBlob(report) {
  await loadImages();
  const [canvas, clear] = newCanvas(GIF_PIXELS), indices = gifIndices();
  canvas.getContext("2d", {willReadFrequently: true});
  const pixelsOf = i => {
    const g = clear();
    paintPicture(g, i);
    return g.getImageData(0, 0, canvas.width, canvas.height).data;
  };
  const few = indices.filter((_, i) => i % Math.ceil(indices.length / 12) == 0);
  const palette = gifPalette(few.map(pixelsOf));
  const parts = [new Uint8Array(gifHeader(canvas.width, canvas.height, palette))];
  const delay = Math.max(2, Math.round(100 / data.fps / $("speed").value));
  let before = null;
  for (const [k, i] of indices.entries()) {
    const pixels = pixelsOf(i), rest = i == indices.at(-1) ? 150 : 0;
    parts.push(gifPicture(canvas.width, canvas.height, pixels, before, palette, delay + rest));
    before = pixels;
    report(k / indices.length);
    await new Promise(done => setTimeout(done));
    if (isCanceled) return null;
  }
  return new Blob([...parts, new Uint8Array([0x3b])], {type: "image/gif"});
}

// Hides what this page may not do: a sandbox allows no cookies, no files, and has no address.
function hideForbidden() {
  let isSandboxed = false;
  try {
    document.cookie;
  } catch {
    isSandboxed = true;
  }
  $("png").hidden = $("gif").hidden = isSandboxed;
  $("link").hidden = location.protocol == "about:";
  $("full").hidden = !document.fullscreenEnabled;
}
