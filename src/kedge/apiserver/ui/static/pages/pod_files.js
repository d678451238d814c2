// The files of a pod's downward API volumes.

import { html, nothing } from "../lit.js";
import { allContainers } from "../pods.js";
import { sourceValue } from "../downward.js";
import { redraw } from "../redraw.js";
import { run } from "../command.js";
import { card, clipped, plainTable } from "../parts.js";
import { mayEnter } from "../rights.js";

const read = { uid: "", contents: new Map() };

export function hasFiles(pod) {
  return filesOf(pod).length > 0;
}

/** Return the files: volume, path, source, and where containers find them. */
function filesOf(pod) {
  return (pod.spec.volumes ?? []).flatMap((volume) => {
    const parts = volume.downwardAPI ? [volume.downwardAPI] : (volume.projected?.sources ?? []).map((each) => each.downwardAPI).filter(Boolean);
    return parts.flatMap((part) => (part.items ?? []).map((item) => ({ volume: volume.name, item, mounts: mountsOf(pod, volume.name) })));
  });
}

function mountsOf(pod, volume) {
  return allContainers(pod.spec).flatMap((container) => (container.volumeMounts ?? []).filter((each) => each.name === volume && !each.subPath).map((each) => ({ container: container.name, path: each.mountPath })));
}

export function filesTab(pod) {
  if (read.uid !== pod.metadata.uid) Object.assign(read, { uid: pod.metadata.uid, contents: new Map() });
  const files = filesOf(pod);
  const runs = pod.status?.phase === "Running" && mayEnter(pod.metadata.namespace);
  return html`<div class="controls">${runs ? html`<button @click=${() => readAll(pod, files)}>Read from the containers</button>` : nothing}</div>
    ${card("Files of downward API volumes", plainTable("Files", ["File", "Content", "From", "Volume"], files.map((file) => {
      const { value, from } = sourceValue(pod, file.mounts[0]?.container, file.item) ?? { value: "", from: "" };
      const place = file.mounts[0] ? `${file.mounts[0].path}/${file.item.path}` : file.item.path;
      return [html`<code>${place}</code>${file.mounts[0] ? html`<div class="dim">in ${file.mounts[0].container}</div>` : nothing}`, html`<pre class="content">${clipped(read.contents.get(place) ?? value, 20000)}</pre>`, from, file.volume];
    })))}`;
}

async function readAll(pod, files) {
  for (const { item, mounts } of files) {
    if (!mounts.length) continue;
    const place = `${mounts[0].path}/${item.path}`;
    const content = await run(pod.metadata.namespace, pod.metadata.name, mounts[0].container, ["cat", place]).catch((error) => `(${error.message})`);
    read.contents.set(place, content);
  }
  redraw();
}
