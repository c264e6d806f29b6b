// A server of the release binary that a test starts, stops, kills and starts again on the same address and directory.

import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import * as http from "node:http"
import * as https from "node:https"
import { type AddressInfo, createServer } from "node:net"
import { tmpdir } from "node:os"
import { join, resolve } from "node:path"

const binary = process.env.THALWEG_TEST_BINARY ?? "../../target/release/thalweg"

const START_MS_MAX = 20_000

export interface Answer {
  status: number
  headers: http.IncomingHttpHeaders
  body: string
}

/** What another command of the binary prints. */
export function run(...words: string[]): string {
  return execFileSync(binary, words, { encoding: "utf8" }).trim()
}

export async function freePort(): Promise<number> {
  const [port] = await freePorts(1)
  return port
}

/** Ports that nobody listens on. All are taken before one is given back: the system may give the same one twice. */
async function freePorts(count: number): Promise<number[]> {
  const sockets = Array.from({ length: count }, () => createServer().listen(0, "127.0.0.1"))
  await Promise.all(sockets.map((socket) => once(socket, "listening")))
  const ports = sockets.map((socket) => (socket.address() as AddressInfo).port)
  await Promise.all(sockets.map((socket) => new Promise((closed) => socket.close(closed))))
  return ports
}

/** One request by the machine's own client. */
export function ask(url: string, options: https.RequestOptions, body = ""): Promise<Answer> {
  const { request } = url.startsWith("https:") ? https : http
  return new Promise((resolve, reject) => {
    const sent = request(url, options, async (answer) => {
      let text = ""
      for await (const piece of answer.setEncoding("utf8")) text += piece
      resolve({ status: answer.statusCode ?? 0, headers: answer.headers, body: text })
    })
    sent.on("error", reject).end(body)
  })
}

export class Server {
  private child?: ChildProcess

  private constructor(
    private readonly scratch: string,
    private readonly scheme: string,
    readonly port: number,
    private readonly adminPort: number,
    private readonly flags: string[],
  ) {}

  /** Starts one, over TLS with a certificate of its own and with `files` where it runs. */
  static overTls(flags: string[] = [], files: Record<string, string> = {}): Promise<Server> {
    return Server.start("https", ["--tls-self-signed", ...flags], files)
  }

  /** Starts one in plain, with `files` where it runs. */
  static inPlain(flags: string[] = [], files: Record<string, string> = {}): Promise<Server> {
    return Server.start("http", flags, files)
  }

  private static async start(scheme: string, flags: string[], files: Record<string, string> = {}): Promise<Server> {
    const scratch = mkdtempSync(join(tmpdir(), "thalweg-test-"))
    const [port, adminPort] = await freePorts(2)
    const server = new Server(scratch, scheme, port, adminPort, flags)
    for (const [name, text] of Object.entries(files)) server.write(name, text)
    await server.startAgain()
    return server
  }

  get origin(): string {
    return `${this.scheme}://localhost:${this.port}`
  }

  /** A file where the server runs. */
  path(name: string): string {
    return join(this.scratch, name)
  }

  url(stream: string): string {
    return `${this.origin}/v1/stream/${stream}`
  }

  async startAgain(): Promise<void> {
    const addresses = ["--listen", `127.0.0.1:${this.port}`, "--admin-listen", `127.0.0.1:${this.adminPort}`]
    const words = ["serve", ...addresses, "--data-dir", this.path("data"), ...this.flags]
    this.child = spawn(resolve(binary), words, { cwd: this.scratch, stdio: ["ignore", "ignore", "pipe"] })
    let said = ""
    this.child.stderr?.on("data", (piece) => (said += piece))
    const until = Date.now() + START_MS_MAX
    for (;;) {
      const ready = await ask(`http://127.0.0.1:${this.adminPort}/readyz`, {}).catch(() => undefined)
      if (ready?.status === 200) return
      if (this.child.exitCode !== null || Date.now() > until) throw new Error(`the server does not start: ${said}`)
      await new Promise((later) => setTimeout(later, 20))
    }
  }

  /** Writes a file that only its owner may read, where the server runs. */
  write(name: string, text: string): void {
    writeFileSync(this.path(name), text, { mode: 0o600 })
  }

  /** Asks the server to take its access file again; what it says to that. */
  reload(): Promise<Answer> {
    return ask(`http://127.0.0.1:${this.adminPort}/reload`, { method: "PUT" })
  }

  /** Ends the process and waits until it is gone. */
  async end(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    const { child } = this
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, "exit")
    child.kill(signal)
    await gone
  }

  async remove(): Promise<void> {
    await this.end("SIGTERM")
    rmSync(this.scratch, { recursive: true, force: true })
  }

  /** One request by the machine's own client, which is no web page. */
  ask(method: string, stream: string, headers: http.OutgoingHttpHeaders = {}, body = ""): Promise<Answer> {
    const isTls = this.scheme === "https"
    const ca = isTls ? readFileSync(this.path("data/tls/self-signed.crt")) : undefined
    return ask(this.url(stream), { method, headers, ca }, body)
  }
}
