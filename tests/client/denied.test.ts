// What the official producer does when the server denies its append. The server lets clients without a token do
// everything, and knows one token that may only read.

import { randomUUID } from "node:crypto"
import { DurableStream, FetchError, IdempotentProducer } from "@durable-streams/client"
import { describe, expect, test } from "vitest"

const base = process.env.THALWEG_TEST_URL
const token = process.env.THALWEG_TEST_READ_TOKEN

/** Requests after which a producer is taken for one that never stops. */
const WITHOUT_END = 50

async function denied(change: (answer: Response) => Response) {
  const url = `${base}/v1/stream/client/denied/${randomUUID()}`
  const handle = await DurableStream.create({ url, contentType: "application/json" })
  const errors: Error[] = []
  let posts = 0
  const withToken: typeof fetch = async (input, init) => {
    posts += 1
    if (posts > WITHOUT_END) throw new Error("it never stops")
    const headers = new Headers(init?.headers)
    headers.set("Authorization", `Bearer ${token}`)
    return change(await fetch(input, { ...init, headers }))
  }
  const producer = new IdempotentProducer(handle, "writer-1", {
    autoClaim: true,
    lingerMs: 1,
    fetch: withToken,
    onError: (error) => errors.push(error),
  })
  producer.append(JSON.stringify({ id: 1 }))
  await producer.flush().catch((error: Error) => errors.push(error))
  return { posts, error: errors[0] }
}

// A server of somebody else's has no such token.
describe.runIf(token)("a producer whose token may only read", () => {
  test("fails with its first request", async () => {
    const { posts, error } = await denied((answer) => answer)
    expect(error).toBeInstanceOf(FetchError)
    expect(error).toMatchObject({ status: 401 })
    expect(posts).toBe(1)
  })

  test("would never stop if it got a 403", async () => {
    const { posts } = await denied((answer) => new Response(answer.body, { status: 403 }))
    expect(posts).toBeGreaterThan(WITHOUT_END)
  })
})
