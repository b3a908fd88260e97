// A client of ckptd for Node.js, without any package. See protocol/WIRE.md.
// As a program: node client.mjs ADDRESS CHECKPOINT_DIR WORKTREE
// ADDRESS is what `ckpt --json daemon status` gives as "socket": a path, or tcp:HOST:PORT@FILE.
import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { lstatSync, readFileSync, statSync } from "node:fs";
import net from "node:net";
import { pathToFileURL } from "node:url";

export class Client {
  #socket;
  #buffer = Buffer.alloc(0);
  #waiting = new Map();
  #nextId = 1;

  // Called for every notification of the daemon.
  onNotice = () => {};

  static async connect(address) {
    const client = new Client();
    const [, scheme, file] = /^(?:(tcp):[^@]*@)?(.*)$/s.exec(address);
    client.#socket = scheme === "tcp" ? await connectTcp(file) : await opened(net.connect(file));
    client.#socket.on("data", (piece) => client.#take(piece));
    client.#socket.on("close", () => client.#end());
    client.#socket.on("error", () => {});
    return client;
  }

  // Gives a promise of the result; its property `id` is what cancel() takes.
  call(method, params = {}) {
    const id = this.#nextId++;
    const reply = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    this.#send({ jsonrpc: "2.0", id, method, params });
    return Object.assign(reply, { id });
  }

  notify(method, params) {
    this.#send({ jsonrpc: "2.0", method, params });
  }

  close() {
    this.#socket.end();
  }

  #send(message) {
    this.#socket.write(JSON.stringify(message) + "\n");
  }

  #take(piece) {
    this.#buffer = Buffer.concat([this.#buffer, piece]);
    for (let end; (end = this.#buffer.indexOf(10)) >= 0; ) {
      const message = JSON.parse(this.#buffer.subarray(0, end).toString("utf8"));
      this.#buffer = this.#buffer.subarray(end + 1);
      this.#heard(message);
    }
  }

  #heard(message) {
    if (message.method !== undefined) return this.onNotice(message);
    const waiting = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error === undefined) waiting?.resolve(message.result);
    else waiting?.reject(Object.assign(new Error(message.error.message), message.error.data));
  }

  #end() {
    for (const { reject } of this.#waiting.values()) reject(new Error("the daemon closed the connection"));
    this.#waiting.clear();
  }
}

const opened = (socket) =>
  new Promise((resolve, reject) => socket.once("connect", () => resolve(socket)).once("error", reject));

async function connectTcp(file) {
  const name = readPrivate(file);
  const [, host, port] = /^tcp:\[?([^\]]*)\]?:(\d+)$/.exec(name);
  const token = Buffer.from(readPrivate(file + ".token"), "hex");
  const socket = await opened(net.connect({ host, port: Number(port), noDelay: true }));
  try {
    await prove(socket, token, name);
  } catch (error) {
    socket.destroy();
    throw error;
  }
  return socket;
}

// Both sides prove that they know the token, before the first frame.
async function prove(socket, token, name) {
  const mine = randomBytes(32).toString("hex");
  socket.write(`CKPT-AUTH 1 ${mine}\n`);
  const [, theirs, proof] = /^CKPT-AUTH 1 ([0-9a-f]{64}) ([0-9a-f]{64})$/.exec(await line(socket)) ?? [];
  const proofOf = (role) =>
    createHmac("sha256", token).update(["ckpt-auth 1", role, name, mine, theirs].join("\n")).digest();
  if (proof === undefined || !timingSafeEqual(proofOf("server"), Buffer.from(proof, "hex"))) {
    throw new Error("what listens there does not know the token");
  }
  socket.write(proofOf("client").toString("hex") + "\n");
}

// The daemon says nothing more before the client does: what comes is one line.
const line = (socket) =>
  new Promise((resolve, reject) => {
    let text = "";
    const done = (settle, value) => {
      socket.removeAllListeners("data").removeAllListeners("close").setTimeout(0);
      socket.pause();
      settle(value);
      socket.resume();
    };
    socket.on("data", (piece) => {
      text += piece.toString("latin1");
      if (text.endsWith("\n") || text.length > 200) done(resolve, text.trimEnd());
    });
    socket.on("close", () => done(reject, new Error("what listens there hung up")));
    socket.setTimeout(5000, () => done(reject, new Error("what listens there says nothing")));
  });

function readPrivate(file) {
  const { uid, mode } = lstatSync(file);
  if (uid !== process.getuid() || (mode & 0o170077) !== 0o100000) throw new Error(`${file} must be yours, mode 0600`);
  return readFileSync(file, "latin1").trimEnd();
}

export const newToken = () => randomBytes(16).toString("hex");

export function worktreeOf(path) {
  const { dev, ino } = statSync(path, { bigint: true });
  return { path, dev: String(dev), ino: String(ino) };
}

async function main(address, checkpoint_dir, path) {
  const client = await Client.connect(address);
  const here = { checkpoint_dir, worktree: worktreeOf(path) };
  const say = (name, value) => console.log(JSON.stringify({ [name]: value }));
  say("hello", await client.call("daemon.hello", { protocol: 1, build: "0", client: "client.mjs" }));
  const saved = await client.call("checkpoint.save", { ...here, token: newToken(), message: "from Node.js" });
  say("save", saved);
  const [list, cat] = await Promise.all([
    client.call("checkpoint.list", { ...here, limit: 1 }),
    client.call("checkpoint.cat", { ...here, id: saved.id, path: "greeting" }),
  ]);
  say("list", list);
  say("cat", Buffer.from(cat.data.b64, "base64").toString("utf8"));
  const plan = { ...here, token: newToken(), id: saved.id, dry_run: true };
  say("plan", await client.call("checkpoint.restore", plan));
  const refused = await client.call("checkpoint.cat", { ...here, id: saved.id, path: "../x" }).catch((error) => error);
  say("refused", { kind: refused.kind, message: refused.message });
  client.close();
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await main(...process.argv.slice(2));
