// One pod.

import { html, nothing } from "../lit.js";
import { watched } from "../cluster.js";
import { ownerOf, readyOf, restarts, stateOf, toneOf, troubleOf } from "../pods.js";
import { age } from "../quantity.js";
import { badge, clipped, facts, problem } from "../parts.js";
import { may, mayEnter } from "../rights.js";
import { usageTab } from "./pod_usage.js";
import { logsTab, shellTab } from "./pod_streams.js";
import { environmentTab } from "./pod_environment.js";
import { filesTab, hasFiles } from "./pod_files.js";
import { whyTab } from "./pod_why.js";
import { yamlEditor } from "./yaml.js";

/** The tabs: label, whether it is offered to the user, and what it shows. */
const TABS = {
  __proto__: null,
  usage: { label: "Usage", offered: () => true, show: usageTab },
  logs: { label: "Logs", offered: (pod) => may("get", "pods/log", pod.metadata.namespace), show: logsTab },
  shell: { label: "Shell", offered: (pod) => pod.status?.phase === "Running" && mayEnter(pod.metadata.namespace), show: shellTab },
  environment: { label: "Environment", offered: () => true, show: environmentTab },
  files: { label: "Files", offered: hasFiles, show: filesTab },
  why: { label: "Why here", offered: (pod) => may("get", "schedulingdecisions", pod.metadata.namespace, { group: "scheduling.kedge" }), show: whyTab },
  yaml: { label: "YAML", offered: () => true, show: (pod) => yamlEditor({ version: "v1", plural: "pods", namespace: pod.metadata.namespace, name: pod.metadata.name }) },
};

export function podPage(namespace, name, tab = "usage") {
  const watch = watched("v1", "pods", namespace, { fieldSelector: `metadata.name=${name}` });
  const pod = watch.get(namespace, name);
  if (!pod) {
    const gone = watch.state === "live" ? html`<p role="alert" class="notice bad">Pod ${name} does not exist in ${namespace}.</p>` : problem(watch);
    return html`<h1>${name}</h1>${gone}`;
  }
  const chosen = TABS[tab]?.offered(pod) ? tab : "usage";
  return html`${heading(pod)} ${chosen === "why" ? nothing : troubleNotice(pod)}
    <nav class="tabs" aria-label="Parts of the pod">${Object.entries(TABS).filter(([, each]) => each.offered(pod)).map(([key, each]) => html`<a href="#/pod/${namespace}/${name}/${key}" aria-current=${key === chosen ? "page" : nothing}>${each.label}</a>`)}</nav>
    ${TABS[chosen].show(pod)}`;
}

function heading(pod) {
  const { namespace, name, creationTimestamp } = pod.metadata;
  const state = stateOf(pod);
  const owner = ownerOf(pod);
  return html`<h1>${name} ${badge(state, toneOf(state))}</h1>
    ${facts([
      ["Namespace", namespace],
      ["Node", pod.spec.nodeName ? (may("get", "nodes") ? html`<a href="#/node/${pod.spec.nodeName}">${pod.spec.nodeName}</a>` : pod.spec.nodeName) : "none yet"],
      ["Address", pod.status.podIP],
      ["Workload", owner.kind === "Pod" ? undefined : html`<a href="#/workload/${owner.kind}/${namespace}/${owner.name}">${owner.kind} ${owner.name}</a>`],
      ["Ready", readyOf(pod).join("/")],
      ["QoS class", pod.status.qosClass],
      ["Restarts", restarts(pod)],
      ["Age", age(creationTimestamp)],
    ])}`;
}

/** Say what is wrong with the pod, and where to look. */
function troubleNotice(pod) {
  const { namespace, name } = pod.metadata;
  const words = troubleOf(pod) || pod.status.message;
  if (!words) return nothing;
  const tone = toneOf(stateOf(pod)) === "bad" ? "bad" : "";
  const link = pod.spec.nodeName ? (TABS.logs.offered(pod) ? ["logs", "Look at the log"] : null) : TABS.why.offered(pod) ? ["why", "See which node refused it, and why"] : null;
  return html`<p class="notice ${tone}">${clipped(words)} ${link ? html`<a href="#/pod/${namespace}/${name}/${link[0]}">${link[1]}</a>` : nothing}</p>`;
}
