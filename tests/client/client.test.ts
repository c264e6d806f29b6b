// What a user of the official client does, with the contents checked. Each test has streams of its
// own, so that the tests say nothing about order.

import { randomUUID } from "node:crypto"
import {
  DurableStream,
  FetchError,
  IdempotentProducer,
  StaleEpochError,
  stream,
} from "@durable-streams/client"
import { describe, expect, test } from "vitest"

interface Item {
  id: number
  text: string
}

const base = process.env.THALWEG_TEST_URL
if (!base) throw new Error("THALWEG_TEST_URL is not set; run this through `cargo xtask client-test`")

// A server that refuses must fail a test at once, not be asked again for ever.
const backoffOptions = { initialDelay: 10, maxDelay: 100, multiplier: 2, maxRetries: 3 }

function freshUrl(name: string): string {
  return `${base}/v1/stream/client/${name}/${randomUUID()}`
}

function items(first: number, count: number): Item[] {
  return Array.from({ length: count }, (_, at) => ({ id: first + at, text: `item ${first + at} – ü` }))
}

async function jsonStream(name: string): Promise<DurableStream> {
  return DurableStream.create({
    url: freshUrl(name),
    contentType: "application/json",
    backoffOptions,
  })
}

async function appendAll(handle: DurableStream, all: Item[]): Promise<void> {
  for (const item of all) await handle.append(JSON.stringify(item))
}

async function readJson(url: string, offset?: string): Promise<Item[]> {
  const response = await stream<Item>({ url, offset, live: false, backoffOptions })
  return response.json()
}

describe("create and append", () => {
  test("text comes back byte for byte, in order", async () => {
    const url = freshUrl("text")
    const handle = await DurableStream.create({ url, contentType: "text/plain", backoffOptions })
    await handle.append("first ")
    await handle.append("zweite – ü ")
    await handle.append("third")
    const response = await stream({ url, live: false, backoffOptions })
    expect(await response.text()).toBe("first zweite – ü third")
    expect(response.contentType).toMatch(/^text\/plain/)
  })

  test("bytes of every value come back", async () => {
    const url = freshUrl("bytes")
    const handle = await DurableStream.create({
      url,
      contentType: "application/octet-stream",
      backoffOptions,
    })
    const sent = Uint8Array.from({ length: 4096 }, (_, at) => at % 256)
    await handle.append(sent)
    const response = await stream({ url, live: false, backoffOptions })
    expect(await response.body()).toEqual(sent)
  })

  test("a stream can start with contents", async () => {
    const url = freshUrl("body")
    await DurableStream.create({ url, contentType: "text/plain", body: "at birth", backoffOptions })
    const response = await stream({ url, live: false, backoffOptions })
    expect(await response.text()).toBe("at birth")
  })

  test("a source of pieces is one append", async () => {
    const url = freshUrl("pieces")
    const handle = await DurableStream.create({ url, contentType: "text/plain", backoffOptions })
    async function* pieces(): AsyncGenerator<string> {
      for (let line = 0; line < 100; line += 1) yield `line ${line}\n`
    }
    await handle.appendStream(pieces())
    const response = await stream({ url, live: false, backoffOptions })
    const lines = (await response.text()).split("\n")
    expect(lines).toHaveLength(101)
    expect(lines[99]).toBe("line 99")
  })

  test("head knows type and tail, and a deleted stream is gone", async () => {
    const handle = await jsonStream("head")
    await appendAll(handle, items(0, 3))
    const before = await handle.head()
    expect(before.exists).toBe(true)
    expect(before.contentType).toBe("application/json")
    const response = await stream<Item>({ url: handle.url, live: false, backoffOptions })
    await response.json()
    expect(response.offset).toBe(before.offset)
    await handle.delete()
    expect((await handle.head()).exists).toBe(false)
  })
})

describe("JSON", () => {
  test("messages come back one by one, also from the middle", async () => {
    const handle = await jsonStream("json")
    await appendAll(handle, items(0, 5))
    const { offset } = await handle.head()
    await appendAll(handle, items(5, 3))
    expect(await readJson(handle.url)).toEqual(items(0, 8))
    expect(await readJson(handle.url, offset)).toEqual(items(5, 3))
  })

  test("appends that overlap are batched and none is lost", async () => {
    const handle = await jsonStream("overlap")
    await Promise.all(items(0, 200).map((item) => handle.append(JSON.stringify(item))))
    expect(await readJson(handle.url)).toEqual(items(0, 200))
  })

  test("nested values and numbers survive", async () => {
    const handle = await jsonStream("nested")
    const value = { list: [1, [2, []], null, true], text: 'quote " and \\', number: -1.5e10 }
    await handle.append(JSON.stringify(value))
    expect(await readJson(handle.url)).toEqual([value])
  })
})

describe.each(["sse", "long-poll"] as const)("live tail by %s", (live) => {
  test("a reader gets what was there and what comes, once and in order", async () => {
    const handle = await jsonStream(live)
    await appendAll(handle, items(0, 3))
    const response = await stream<Item>({ url: handle.url, live, backoffOptions })
    const seen: Item[] = []
    const complete = new Promise<void>((resolve) => {
      response.subscribeJson((batch) => {
        seen.push(...batch.items)
        if (batch.streamClosed) resolve()
      })
    })
    await appendAll(handle, items(3, 20))
    await handle.close()
    await complete
    expect(seen).toEqual(items(0, 23))
    expect(response.streamClosed).toBe(true)
  })

  test("a reader outlives answers that end without data", async () => {
    const handle = await jsonStream(`${live}-idle`)
    const response = await stream<Item>({ url: handle.url, live, backoffOptions })
    const first = new Promise<readonly Item[]>((resolve) => {
      response.subscribeJson((batch) => {
        if (batch.items.length > 0) resolve(batch.items)
      })
    })
    // Longer than the long-poll timeout that the server was started with.
    await new Promise((resolve) => setTimeout(resolve, 1200))
    await appendAll(handle, items(7, 1))
    expect(await first).toEqual(items(7, 1))
    response.cancel()
  })
})

describe("idempotent producer", () => {
  test("pipelined batches arrive exactly once and in order", async () => {
    const handle = await jsonStream("producer")
    const errors: Error[] = []
    const producer = new IdempotentProducer(handle, "writer-1", {
      maxBatchBytes: 512,
      lingerMs: 1,
      onError: (error) => errors.push(error),
    })
    for (const item of items(0, 500)) producer.append(JSON.stringify(item))
    await producer.flush()
    await producer.detach()
    expect(errors).toEqual([])
    expect(await readJson(handle.url)).toEqual(items(0, 500))
  })

  test("a batch that is sent again is stored once", async () => {
    const handle = await jsonStream("again")
    let posts = 0
    const everyRequestTwice: typeof fetch = async (input, init) => {
      if (init?.method === "POST") {
        posts += 1
        await (await fetch(input, init)).arrayBuffer()
      }
      return fetch(input, init)
    }
    const producer = new IdempotentProducer(handle, "writer-1", {
      lingerMs: 1,
      maxInFlight: 1,
      fetch: everyRequestTwice,
    })
    for (const item of items(0, 10)) {
      producer.append(JSON.stringify(item))
      await producer.flush()
    }
    await producer.detach()
    expect(posts).toBe(10)
    expect(await readJson(handle.url)).toEqual(items(0, 10))
  })

  test("an older epoch is fenced off by a newer one", async () => {
    const handle = await jsonStream("fence")
    const errors: Error[] = []
    const old = new IdempotentProducer(handle, "writer-1", { onError: (error) => errors.push(error) })
    old.append(JSON.stringify(items(0, 1)[0]))
    await old.flush()
    const young = new IdempotentProducer(handle, "writer-1", { epoch: 1 })
    young.append(JSON.stringify(items(1, 1)[0]))
    await young.flush()
    old.append(JSON.stringify(items(2, 1)[0]))
    await old.flush().catch((error: Error) => errors.push(error))
    expect(errors[0]).toBeInstanceOf(StaleEpochError)
    expect(await readJson(handle.url)).toEqual(items(0, 2))
  })

  test("a close with a last message may be repeated", async () => {
    const handle = await jsonStream("last")
    const producer = new IdempotentProducer(handle, "writer-1", { lingerMs: 1 })
    producer.append(JSON.stringify(items(0, 1)[0]))
    const closed = await producer.close(JSON.stringify(items(1, 1)[0]))
    const again = await producer.close(JSON.stringify(items(1, 1)[0]))
    expect(again.finalOffset).toBe(closed.finalOffset)
    expect(await readJson(handle.url)).toEqual(items(0, 2))
  })
})

describe("close", () => {
  test("a closed stream refuses appends and keeps its contents", async () => {
    const handle = await jsonStream("close")
    await appendAll(handle, items(0, 2))
    const { finalOffset } = await handle.close()
    expect((await handle.close()).finalOffset).toBe(finalOffset)
    const refused = await handle.append(JSON.stringify(items(2, 1)[0])).catch((error) => error)
    // The client has a StreamClosedError, but its retry layer sees the answer first.
    expect(refused).toBeInstanceOf(FetchError)
    expect(refused).toMatchObject({ status: 409, headers: { "stream-closed": "true" } })
    const head = await handle.head()
    expect(head.streamClosed).toBe(true)
    expect(head.offset).toBe(finalOffset)
    expect(await readJson(handle.url)).toEqual(items(0, 2))
  })

  test("the last message and the close are one", async () => {
    const handle = await jsonStream("final")
    await handle.close({ body: JSON.stringify(items(0, 1)[0]) })
    const response = await stream<Item>({ url: handle.url, live: "long-poll", backoffOptions })
    expect(await response.json()).toEqual(items(0, 1))
    expect(response.streamClosed).toBe(true)
  })
})
