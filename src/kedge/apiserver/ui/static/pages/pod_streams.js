// Logs and shell of a pod.

import { html, nothing } from "../lit.js";
import "../log.js";
import "../terminal.js";
import { allContainers } from "../pods.js";
import { redraw } from "../redraw.js";

const view = { container: "", previous: false, follow: true, times: false, search: "" };

function containerOf(pod, names) {
  return names.includes(view.container) ? view.container : names[0];
}

function containerChoice(names, chosen) {
  if (names.length < 2) return nothing;
  return html`<label>Container <select @change=${(event) => { view.container = event.target.value; redraw(); }}>${names.map((each) => html`<option ?selected=${each === chosen}>${each}</option>`)}</select></label>`;
}

export function logsTab(pod) {
  const names = allContainers(pod.spec).map((each) => each.name);
  const container = containerOf(pod, names);
  const { namespace, name } = pod.metadata;
  const box = (key, label) => html`<label><input type="checkbox" .checked=${view[key]} @change=${(event) => { view[key] = event.target.checked; redraw(); }}> ${label}</label>`;
  return html`<div class="controls">
      ${containerChoice(names, container)}
      <label>Search <input type="search" .value=${view.search} @input=${(event) => { view.search = event.target.value; redraw(); }}></label>
      ${box("follow", "Follow")} ${box("times", "Times")} ${box("previous", "Before the last restart")}
    </div>
    <k-log .source=${{ namespace, pod: name, container, instance: instanceOf(pod, container), previous: view.previous, follow: view.follow, times: view.times, search: view.search }}></k-log>`;
}

/** Return the identity of the container that runs, or ran last. */
function instanceOf(pod, container) {
  const statuses = [...(pod.status?.initContainerStatuses ?? []), ...(pod.status?.containerStatuses ?? []), ...(pod.status?.ephemeralContainerStatuses ?? [])];
  return statuses.find((each) => each.name === container)?.containerID ?? "";
}

export function shellTab(pod) {
  const running = (pod.status?.containerStatuses ?? []).filter((each) => each.state?.running).map((each) => each.name);
  if (!running.length) return html`<p class="notice">No container is running.</p>`;
  const container = containerOf(pod, running);
  return html`<div class="controls">${containerChoice(running, container)}</div>
    <k-terminal .target=${`${pod.metadata.namespace}/${pod.metadata.name}/${container}`}></k-terminal>`;
}
