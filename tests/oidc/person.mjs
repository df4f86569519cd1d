// A person at a browser: opens an address, logs in, and agrees to what is asked.
const [address, login] = process.argv.slice(2);
const cookies = new Map();

async function open(url, form) {
    const headers = { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') };
    const answer = await fetch(url, { method: form ? 'POST' : 'GET', body: form, headers, redirect: 'manual' });
    for (const line of answer.headers.getSetCookie()) {
        const [, name, value] = line.match(/^([^=]+)=([^;]*)/);
        cookies.set(name, value);
    }
    const next = answer.headers.get('location');
    return next ? open(new URL(next, url)) : { url, text: await answer.text() };
}

let page = await open(address);
for (let step = 0; step < 10 && !page.text.includes('Sign-in Success'); step++) {
    const action = page.text.match(/<form[^>]*action="([^"]*)"/);
    if (!action) break;
    const form = new URLSearchParams();
    for (const [field] of page.text.matchAll(/<input[^>]*>/g)) {
        const name = field.match(/name="([^"]*)"/)?.[1];
        if (name) form.set(name, field.match(/value="([^"]*)"/)?.[1] ?? '');
    }
    if (form.has('login')) form.set('login', login);
    if (form.has('password')) form.set('password', 'x');
    page = await open(new URL(action[1].replaceAll('&amp;', '&'), page.url), form);
}
if (!page.text.includes('Sign-in Success')) {
    console.error(page.text);
    process.exit(1);
}
