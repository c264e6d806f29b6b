// All requests of the suite show THALWEG_TEST_TOKEN, if it is set. One that shows something itself is left as it is.

const token = process.env.THALWEG_TEST_TOKEN
if (token !== undefined) {
  const plain = globalThis.fetch
  globalThis.fetch = ((input: never, init?: { headers?: HeadersInit }) => {
    const headers = new Headers(init?.headers ?? (input as { headers?: HeadersInit }).headers)
    if (!headers.has("authorization")) headers.set("authorization", `Bearer ${token}`)
    return plain(input, { ...init, headers: Object.fromEntries(headers) } as never)
  }) as never
}
