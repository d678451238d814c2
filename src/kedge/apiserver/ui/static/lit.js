// The one place that names the version of lit-html.
export { html, svg, nothing, render } from "./vendor/lit-html-3.3.3/lit-html.js";
export { repeat } from "./vendor/lit-html-3.3.3/directives/repeat.js";
export { guard } from "./vendor/lit-html-3.3.3/directives/guard.js";
export { live } from "./vendor/lit-html-3.3.3/directives/live.js";
