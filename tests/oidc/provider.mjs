// An identity provider on this machine: everybody may log in; who they are decides what it says of them.
import Provider from 'oidc-provider';

const port = Number(process.argv[2]);
const groups = { ana: ['staff', 'leads'], ben: ['staff'], eve: [] };
const provider = new Provider(`http://127.0.0.1:${port}`, {
    clients: [
        {
            client_id: 'toft',
            token_endpoint_auth_method: 'none',
            grant_types: ['urn:ietf:params:oauth:grant-type:device_code'],
            redirect_uris: [],
            response_types: [],
        },
        {
            client_id: 'other',
            token_endpoint_auth_method: 'none',
            grant_types: ['urn:ietf:params:oauth:grant-type:device_code'],
            redirect_uris: [],
            response_types: [],
        },
    ],
    claims: { openid: ['sub'], email: ['email', 'email_verified'], groups: ['groups'], profile: ['name'] },
    conformIdTokenClaims: false,
    features: { deviceFlow: { enabled: true }, devInteractions: { enabled: true } },
    findAccount: (_, id) => ({
        accountId: id,
        claims: () => ({
            sub: id,
            email: id === 'mallory' ? 'ana@example.com' : `${id}@example.com`,
            email_verified: id !== 'unverified',
            groups: groups[id] ?? ['staff'],
        }),
    }),
});
provider.listen(port, '127.0.0.1', () => console.log('ready'));
