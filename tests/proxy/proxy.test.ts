// The recipes of docs/proxies.md, run as they are there with other addresses, ports and file names.

import { type ChildProcess, execFileSync, spawn } from "node:child_process"
import { once } from "node:events"
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import * as http2 from "node:http2"
import * as https from "node:https"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterEach, describe, expect, test } from "vitest"
import { type Answer, ask, freePort, run, Server } from "../common/server"

const PAGE = readFileSync("../../docs/proxies.md", "utf8")
const TEXT = { "Content-Type": "text/plain" }
const BODY_BYTES = 10 << 20

/** The code blocks of one language in the page. */
const recipes = (language: string) => [...PAGE.matchAll(new RegExp(`\`\`\`${language}\n([^]*?)\`\`\``, "g"))].map((found) => found[1])

const isInstalled = (program: string) => ["/usr/bin", "/usr/sbin", "/usr/local/bin"].some((dir) => existsSync(join(dir, program)))

class Proxy {
  readonly scratch = mkdtempSync(join(tmpdir(), "thalweg-proxy-"))
  port = 0
  private child?: ChildProcess
  private said = ""

  get origin() {
    return `https://localhost:${this.port}`
  }

  get ca() {
    return readFileSync(join(this.scratch, "streams.crt"))
  }

  async prepare() {
    this.port = await freePort()
    const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", "streams.key"]
    const names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    const words = ["req", "-x509", "-nodes", "-days", "1", ...key, "-out", "streams.crt", ...names]
    execFileSync("openssl", words, { cwd: this.scratch, stdio: "ignore" })
  }

  /** A recipe with this machine's places. */
  placed(recipe: string, server: Server) {
    return recipe
      .replaceAll("/etc/ssl/", `${this.scratch}/`)
      .replaceAll("/var/cache/nginx/", `${this.scratch}/cache-`)
      .replaceAll("127.0.0.1:4437", `127.0.0.1:${server.port}`)
  }

  async start(program: string, words: string[]) {
    this.child = spawn(program, words, { cwd: this.scratch, env: { ...process.env, HOME: this.scratch } })
    for (const out of [this.child.stdout, this.child.stderr]) out?.on("data", (piece) => (this.said += piece))
    for (let tries = 0; tries < 400; tries++) {
      if (this.child.exitCode !== null) break
      const up = await this.ask("GET", "/").catch(() => undefined)
      if (up) return
      await new Promise((later) => setTimeout(later, 25))
    }
    throw new Error(`${program} does not start: ${this.said}`)
  }

  ask(method: string, path: string, headers: Record<string, string> = {}, body = ""): Promise<Answer> {
    return ask(this.origin + path, { method, headers, ca: this.ca, agent: false }, body)
  }

  async stop() {
    if (this.child && this.child.exitCode === null) {
      const gone = once(this.child, "exit")
      this.child.kill("SIGTERM")
      await gone
    }
    rmSync(this.scratch, { recursive: true, force: true })
  }
}

async function nginx(proxy: Proxy, server: Server, { cache = false } = {}) {
  await proxy.prepare()
  const [site, cached] = recipes("nginx")
  const listen = proxy.placed(site, server).replace("listen 443 ssl http2", `listen 127.0.0.1:${proxy.port} ssl http2`)
  mkdirSync(join(proxy.scratch, "temp"))
  const temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) => `${kind}_temp_path temp/${kind};`)
  const config = `
    pid nginx.pid; daemon off; error_log stderr; worker_processes 1;
    events {}
    http { access_log off; ${temp.join(" ")}
    ${cache ? proxy.placed(cached, server) : ""}
    ${listen}
    }`
  writeFileSync(join(proxy.scratch, "nginx.conf"), config.replaceAll("temp/", `${proxy.scratch}/temp/`))
  const nobody = process.getuid?.() === 0 ? "user root; " : ""
  await proxy.start("nginx", ["-p", proxy.scratch, "-c", "nginx.conf", "-e", "stderr", "-g", nobody])
}

async function caddy(proxy: Proxy, server: Server) {
  await proxy.prepare()
  const site = proxy.placed(recipes("caddy")[0], server).replace("streams.example.com", proxy.origin)
  const options = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
  writeFileSync(join(proxy.scratch, "Caddyfile"), options + site)
  await proxy.start("caddy", ["run", "--adapter", "caddyfile", "--config", "Caddyfile"])
}

const ends: (() => Promise<void>)[] = []
afterEach(async () => {
  for (const end of ends.splice(0).reverse()) await end()
})

async function start(program: string, flags: string[], files: Record<string, string> = {}, options = {}) {
  const server = await Server.inPlain(["--trusted-proxies", "127.0.0.1", ...flags], files)
  ends.push(() => server.remove())
  const proxy = new Proxy()
  ends.push(() => proxy.stop())
  await (program === "nginx" ? nginx(proxy, server, options) : caddy(proxy, server))
  return { server, proxy }
}

/** The first event of a live reader, and how long it took after the append. */
function firstEvent(proxy: Proxy, path: string, append: () => Promise<unknown>): Promise<string> {
  return new Promise((resolve, reject) => {
    const url = `${proxy.origin}${path}?live=sse&offset=now`
    const request = https.get(url, { ca: proxy.ca, agent: false }, (answer) => {
      answer.setEncoding("utf8")
      let text = ""
      answer.on("data", (piece) => {
        text += piece
        if (!text.includes("event: data")) return
        request.destroy()
        resolve(text)
      })
      void append().catch(reject)
    })
    request.on("error", reject)
  })
}

async function overHttp2(proxy: Proxy, path: string): Promise<number> {
  const session = http2.connect(proxy.origin, { ca: proxy.ca })
  const stream = session.request({ ":path": path })
  const [headers] = await once(stream, "response")
  stream.resume()
  session.close()
  return headers[":status"]
}

describe.each(["nginx", "caddy"].filter(isInstalled))("behind %s", (program) => {
  test("clients get whole URLs, large bodies, live events and HTTP/2", async () => {
    const { server, proxy } = await start(program, [])
    const created = await proxy.ask("PUT", "/v1/stream/a/b", TEXT)
    expect([created.status, created.headers.location]).toEqual([201, `${proxy.origin}/v1/stream/a/b`])
    const body = "x".repeat(BODY_BYTES)
    expect((await proxy.ask("POST", "/v1/stream/a/b", TEXT, body)).status).toBe(204)
    expect(Number((await server.ask("HEAD", "a/b")).headers["stream-next-offset"]?.slice(0, 16))).toBe(BODY_BYTES)
    const event = await firstEvent(proxy, "/v1/stream/a/b", () => proxy.ask("POST", "/v1/stream/a/b", TEXT, "news"))
    expect(event).toContain("news")
    expect(await overHttp2(proxy, "/v1/stream/a/b?offset=now")).toBe(200)
  })

  test("limits are those of each client, and nobody else may say who one is", async () => {
    const rules = '[anonymous]\ngrants = ["* **"]\nlimits = { requests_per_s = 1 }\n'
    const { server, proxy } = await start(program, ["--access-file", "access.toml"], { "access.toml": rules })
    const from = async (address: string) => (await proxy.ask("HEAD", "/v1/stream/none", { "X-Forwarded-For": address })).status
    const statuses: number[] = []
    // Caddy believes no client; nginx appends this machine, which is trusted here, so that the tests have several clients.
    if (program === "nginx") {
      for (const address of ["192.0.2.1", "192.0.2.1", "192.0.2.2"]) statuses.push(await from(address))
      expect(statuses).toEqual([404, 429, 404])
    } else {
      for (const address of ["192.0.2.1", "192.0.2.2"]) statuses.push(await from(address))
      expect(statuses).toContain(429)
    }
    await server.end("SIGTERM")
  })
})

describe.runIf(isInstalled("nginx"))("a path before the server's own", () => {
  test("is taken off, and stands in Location and in the sources of forks", async () => {
    const { proxy, server } = await start("nginx", ["--public-url", "https://streams.example.com/base"])
    const created = await proxy.ask("PUT", "/base/v1/stream/a", TEXT)
    expect([created.status, created.headers.location]).toEqual([201, "https://streams.example.com/base/v1/stream/a"])
    const fork = await proxy.ask("PUT", "/base/v1/stream/b", { "Stream-Forked-From": "/base/v1/stream/a" })
    expect(fork.status).toBe(201)
    expect((await server.ask("HEAD", "b")).status).toBe(200)
    expect((await proxy.ask("GET", "/elsewhere/v1/stream/a")).status).toBe(404)
    const named = await ask(`http://127.0.0.1:${server.port}/v1/stream/a`, { method: "HEAD", headers: { Host: "streams.example.com" } })
    expect(named.status).toBe(200)
  })
})

describe.runIf(isInstalled("nginx"))("a cache of nginx", () => {
  test("keeps what everybody may read, and shows nobody what a token has fetched", async () => {
    const rules = '[anonymous]\ngrants = ["read public/"]\n'
    const { server, proxy } = await start("nginx", ["--access-file", "access.toml"], { "access.toml": rules }, { cache: true })
    const token = (id: string, grant: string) => {
      const secret = run("token", "add", "--access-file", server.path("access.toml"), "--id", id, "--grant", grant)
      return { Authorization: `Bearer ${secret}` }
    }
    const [writer, ann, bob] = [token("writer", "* **"), token("ann", "read ann/"), token("bob", "read bob/")]
    expect((await server.reload()).status).toBe(200)
    for (const stream of ["public/a", "ann/a", "bob/a"]) {
      expect((await server.ask("PUT", stream, { ...TEXT, ...writer })).status).toBe(201)
      expect((await server.ask("POST", stream, { ...TEXT, ...writer }, `of ${stream}`)).status).toBe(204)
    }
    const get = async (stream: string, headers = {}) => {
      const { status, body, headers: got } = await proxy.ask("GET", `/v1/stream/${stream}`, headers)
      return { status, body: status === 200 ? body : "", cache: got["x-cache"] }
    }
    expect(await get("public/a")).toEqual({ status: 200, body: "of public/a", cache: "MISS" })
    expect(await get("public/a")).toEqual({ status: 200, body: "of public/a", cache: "HIT" })
    for (let turn = 0; turn < 3; turn++) {
      expect(await get("ann/a", ann)).toMatchObject({ status: 200, body: "of ann/a", cache: "MISS" })
      expect(await get("ann/a", bob)).toMatchObject({ status: 403, body: "" })
      expect(await get("ann/a")).toMatchObject({ status: 401, body: "" })
      expect(await get("bob/a", bob)).toMatchObject({ status: 200, body: "of bob/a", cache: "MISS" })
    }
    // What a token has fetched of a public path may be kept: everybody gets the same.
    expect(await get("public/a", ann)).toMatchObject({ status: 200, body: "of public/a" })
  })
})
