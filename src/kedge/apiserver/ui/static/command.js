// Run a command in a container, and return what it prints.

import { open, path } from "./session.js";

const PATIENCE_MS = 10000;
const MOST_BYTES = 1 << 20;

export function run(namespace, pod, container, words) {
  const query = [["container", container], ["stdout", "true"], ["stderr", "true"], ...words.map((word) => ["command", word])];
  const socket = open(path("v1", "pods", namespace, pod, "exec"), query, "v5.channel.k8s.io");
  socket.binaryType = "arraybuffer";
  return new Promise((resolve, reject) => {
    const decoder = new TextDecoder();
    let output = "";
    let failure = "The command did not end in time.";
    const timer = setTimeout(() => socket.close(), PATIENCE_MS);
    socket.onmessage = ({ data }) => {
      const bytes = new Uint8Array(data);
      if (bytes[0] === 1) output += decoder.decode(bytes.subarray(1), { stream: true });
      if (bytes[0] === 3) {
        const status = JSON.parse(new TextDecoder().decode(bytes.subarray(1)));
        failure = status.status === "Success" ? "" : status.message;
      }
      if (output.length > MOST_BYTES) socket.close();
    };
    socket.onclose = () => {
      clearTimeout(timer);
      if (failure) reject(new Error(failure));
      else resolve(output);
    };
  });
}
