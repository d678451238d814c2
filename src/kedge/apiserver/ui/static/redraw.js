// When the page is drawn again: soon after data changed, at once after the user did something.

const SOON_MS = 200;

let draw = () => {};
let timer = null;
let frame = null;

export function onRedraw(callback) {
  draw = callback;
}

/** Data has changed. */
export function changed() {
  timer ??= setTimeout(redraw, SOON_MS);
}

/** The user has done something. */
export function redraw() {
  clearTimeout(timer);
  timer = null;
  frame ??= requestAnimationFrame(() => {
    frame = null;
    draw();
  });
}
