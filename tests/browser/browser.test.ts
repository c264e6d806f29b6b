// Live readers of one origin in Chromium over TLS; pages of other machines; a page whose reader has a signed URL.

import { randomBytes } from "node:crypto"
import type { Server as PageServer } from "node:http"
import { type Browser, chromium, type Page } from "playwright-core"
import { afterAll, beforeAll, describe, expect, test } from "vitest"
import { cutOnce } from "./cutter"
import { attack, follow, type Received, servePage } from "./page"
import { run, Server } from "../common/server"

const READERS = 30
const FOREIGN = "evil.example"
const JSON_TYPE = { "Content-Type": "application/json" }
const DELIVERY = { timeout: 20_000, interval: 50 }

let browser: Browser
let pages: { port: number; server: PageServer }

beforeAll(async () => {
  pages = await servePage()
  const quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"]
  const names = `--host-resolver-rules=MAP ${FOREIGN} 127.0.0.1`
  const args = ["--no-sandbox", "--disable-gpu", "--no-first-run", names, ...quiet]
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args })
})

afterAll(async () => {
  await browser?.close()
  pages?.server.close()
})

async function openPage(host: string): Promise<Page> {
  const context = await browser.newContext({ ignoreHTTPSErrors: true })
  const page = await context.newPage()
  await page.goto(`http://${host}:${pages.port}/`)
  return page
}

const receivedBy = (page: Page): Promise<Received> => page.evaluate(() => window.received)

/** The connections and protocols of the answers that a page gets from an origin from now on. */
async function watchNetwork(page: Page, origin: string) {
  const seen = { connections: new Set<number>(), protocols: new Set<string>() }
  const session = await page.context().newCDPSession(page)
  session.on("Network.responseReceived", ({ response }) => {
    // The browser also asks for the page's icon.
    if (!response.url.startsWith(origin)) return
    seen.connections.add(response.connectionId)
    seen.protocols.add(response.protocol ?? "unknown")
  })
  await session.send("Network.enable")
  return seen
}

class Streams {
  readonly events = Array.from({ length: READERS }, (_, i) => `page/events-${i}`)
  readonly polls = Array.from({ length: READERS }, (_, i) => `page/polls-${i}`)
  private written = 0

  constructor(private readonly server: Server) {}

  get all() {
    return [...this.events, ...this.polls]
  }

  async create() {
    for (const stream of this.all) expect((await this.server.ask("PUT", stream, JSON_TYPE)).status).toBe(201)
  }

  /** Appends the next number to each of them, as a producer that repeats what was not answered. */
  async append() {
    const n = this.written++
    const producer = { "Producer-Id": "test", "Producer-Epoch": 0, "Producer-Seq": n }
    const append = async (stream: string) => {
      for (;;) {
        const body = JSON.stringify({ n })
        const answer = await this.server.ask("POST", stream, { ...JSON_TYPE, ...producer }, body).catch(() => undefined)
        if (answer && answer.status < 300) return
        if (answer && answer.status !== 503) throw new Error(`${answer.status} ${answer.body}`)
        await new Promise((later) => setTimeout(later, 50))
      }
    }
    await Promise.all(this.all.map(append))
  }

  async follow(page: Page) {
    const urls = (streams: string[]) => streams.map((stream) => this.server.url(stream))
    await page.evaluate(follow, { events: urls(this.events), polls: urls(this.polls) })
  }

  /** What readers have that got everything once and in order. */
  get expected(): Received {
    const numbers = Array.from({ length: this.written }, (_, n) => n)
    return Object.fromEntries(this.all.map((stream) => [this.server.url(stream), numbers]))
  }
}

describe("a page with 30 EventSources and 30 long-polls of one origin", () => {
  test("gets everything once and in order over one connection, whatever becomes of the server", async () => {
    const server = await Server.overTls()
    const streams = new Streams(server)
    await streams.create()
    const page = await openPage("localhost")
    const network = await watchNetwork(page, server.origin)
    await streams.append()
    await streams.follow(page)
    await streams.append()
    await expect.poll(() => receivedBy(page), DELIVERY).toEqual(streams.expected)
    expect([...network.protocols]).toEqual(["h2"])
    expect(network.connections.size).toBe(1)
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      const under = streams.append()
      await server.end(signal)
      await server.startAgain()
      await under
      await streams.append()
      await expect.poll(() => receivedBy(page), DELIVERY).toEqual(streams.expected)
    }
    await page.context().close()
    await server.remove()
  })

  test("starves without HTTP/2, so the other test sees a difference", async () => {
    const server = await Server.overTls(["--http2", "off", "--long-poll-timeout-ms", "60000"])
    const streams = new Streams(server)
    await streams.create()
    const page = await openPage("localhost")
    await streams.follow(page)
    await streams.append()
    await new Promise((later) => setTimeout(later, 2_000))
    const received = Object.values(await receivedBy(page))
    expect(received.filter((numbers) => numbers.length > 0).length).toBeLessThan(2 * READERS)
    await page.context().close()
    await server.remove()
  })
})

describe("an EventSource whose connection breaks", () => {
  // An answer's head and the events of two deliveries are shorter.
  const ANSWER_BYTES = 1_200
  const AT_A_TIME = 100
  const stride = Number(process.env.THALWEG_TEST_CUT_STRIDE ?? 12)

  test(`after each ${stride}th byte misses nothing and gets nothing twice`, async () => {
    const server = await Server.inPlain()
    const stream = "page/cut"
    await server.ask("PUT", stream, JSON_TYPE)
    const append = async (n: number) => {
      expect((await server.ask("POST", stream, JSON_TYPE, JSON.stringify({ n }))).status).toBe(204)
    }
    let written = 0
    let cuts = 0
    for (; written < 3; written++) await append(written)
    for (let first = 1; first < ANSWER_BYTES; first += AT_A_TIME * stride) {
      const places = Array.from({ length: AT_A_TIME }, (_, i) => first + i * stride)
      const ways = await Promise.all(places.map((bytes) => cutOnce(server.port, bytes)))
      // Each way is an origin of its own, so the browser's limit of connections for one does not matter.
      const urls = ways.map((way) => `http://127.0.0.1:${way.port}/v1/stream/${stream}`)
      const page = await openPage("localhost")
      await page.evaluate(follow, { events: urls, polls: [] })
      const waiting = async () => Object.values(await receivedBy(page)).filter((got) => got.length === 0).length
      await expect.poll(waiting, DELIVERY).toBe(0)
      await append(written++)
      const numbers = Array.from({ length: written }, (_, n) => n)
      const expected = Object.fromEntries(urls.map((url) => [url, numbers]))
      await expect.poll(() => receivedBy(page), DELIVERY).toEqual(expected)
      cuts += ways.filter((way) => way.wasCut.value).length
      await page.context().close()
      ways.forEach((way) => way.close())
    }
    expect(cuts * stride).toBeGreaterThan(ANSWER_BYTES / 3)
    console.log(`${cuts} connections were cut`)
    await server.remove()
  })
})

describe("a server on loopback that lets everybody in", () => {
  test("gives pages of this machine everything, and lets others change nothing", async () => {
    const server = await Server.overTls()
    await server.ask("PUT", "page/target", { "Content-Type": "text/plain" })
    const append = await server.ask("POST", "page/target", { "Content-Type": "text/plain" }, "kept")
    expect(append.status).toBe(204)
    const foreign = await openPage(FOREIGN)
    const results = await foreign.evaluate(attack, server.url("page/target"))
    expect(results.filter((result) => / 2\d\d$/.test(result))).toEqual([])
    expect((await server.ask("GET", "page/target")).body).toBe("kept")
    const own = await openPage("localhost")
    expect(await own.evaluate(attack, server.url("page/target"))).toContain("delete: cors 204")
    expect((await server.ask("GET", "page/target")).status).toBe(404)
    await foreign.context().close()
    await own.context().close()
    await server.remove()
  })
})

describe("a server with an access file", () => {
  test("lets an EventSource read by a signed URL, and by no other", async () => {
    const rules = '[[signing_key]]\nid = "web"\nsecret_file = "web.key"\ngrants = ["read page/"]\n'
    const files = { "access.toml": rules, "web.key": randomBytes(32).toString("hex") }
    const server = await Server.overTls(["--access-file", "access.toml"], files)
    const access = server.path("access.toml")
    const token = run("token", "add", "--access-file", access, "--id", "writer", "--grant", "* **")
    expect((await server.reload()).status).toBe(200)
    const authorized = { Authorization: `Bearer ${token}`, ...JSON_TYPE }
    expect((await server.ask("PUT", "page/secret", authorized)).status).toBe(201)
    expect((await server.ask("POST", "page/secret", authorized, '{"n":7}')).status).toBe(204)
    const signed = server.origin + run("token", "sign", "page/secret", "--key-file", server.path("web.key"), "--key", "web")
    const plain = server.url("page/secret")
    const page = await openPage("localhost")
    await page.evaluate(follow, { events: [signed, plain], polls: [plain] })
    await expect.poll(() => receivedBy(page), DELIVERY).toMatchObject({ [signed]: [7] })
    expect(await receivedBy(page)).toEqual({ [signed]: [7], [plain]: [] })
    await page.context().close()
    await server.remove()
  })
})
