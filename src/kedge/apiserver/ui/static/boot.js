// Loads the page. Browsers give up all transfers when a network interface of the machine comes or
// goes, which happens with every pod that starts here: then the page is loaded again.

const TRIES = "kedge-load-tries";
const MOST_TRIES = 10;

/** Load the page, if everything that index.html names is there: once it runs, it may sign in. */
async function load() {
  const styles = [...document.querySelectorAll("link[rel=stylesheet]")];
  if (!window.uPlot || !styles.every((each) => each.sheet)) throw new Error("a part of it is missing");
  await import("./main.js");
}

load().then(
  () => sessionStorage.removeItem(TRIES),
  (error) => {
    const tries = Number(sessionStorage.getItem(TRIES) ?? 0);
    if (tries >= MOST_TRIES) {
      sessionStorage.removeItem(TRIES);
      document.getElementById("app").textContent = `The page cannot be loaded: ${error.message}`;
      return;
    }
    sessionStorage.setItem(TRIES, String(tries + 1));
    setTimeout(() => location.reload(), 200);
  },
);
