// When the page is drawn again: soon after data changed, at once after the user did something.

const SOON_MS = 200;
/** A page that the browser does not show gets no frames. It is drawn less often. */
const HIDDEN_MS = 500;

let draw = () => {};
let timer = null;
let pending = false;

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
  if (pending) return;
  pending = true;
  const act = () => {
    if (!pending) return;
    pending = false;
    draw();
  };
  requestAnimationFrame(act);
  setTimeout(act, HIDDEN_MS);
}
