// Begins a save, waits until the daemon tells how far it is, and calls it off: node cancel.mjs ADDRESS CHECKPOINT_DIR WORKTREE
import { Client, newToken, worktreeOf } from "./client.mjs";

const [address, checkpoint_dir, path] = process.argv.slice(2);
const client = await Client.connect(address);
const hello = { protocol: 1, build: "0", client: "cancel.mjs", capabilities: ["progress"] };
await client.call("daemon.hello", hello);

const told = [];
const save = client.call("checkpoint.save", { checkpoint_dir, worktree: worktreeOf(path), token: newToken() });
client.onNotice = ({ method, params }) => {
  if (method !== "$/progress" || params.id !== save.id) return;
  told.push(params.phase);
  client.notify("$/cancel", { id: save.id });
};
const outcome = await save.then(() => "saved", (error) => error.kind);
const late = { deadline_s: 0.000001, checkpoint_dir, worktree: worktreeOf(path), token: newToken() };
const deadline = await client.call("checkpoint.save", late).then(() => "saved", (error) => error.kind);
client.close();
console.log(JSON.stringify({ outcome, deadline, told: told.length > 0 }));
