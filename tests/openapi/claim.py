# A client that is made from the description: it makes a task, claims it and finishes it.
import sys

from toft_client import AuthenticatedClient
from toft_client.api.verbs import claim, finish, flow_new
from toft_client.models import (
    ClaimBody, ClaimRequest, EvidenceType2, FinishBody, FinishRequest, FlowNew, FlowNewBody, HowType0,
)

url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token)
plan = {"plan": {"title": "from Python", "tasks": [{"name": "only"}]}, "source": {"kind": "prompt", "text": "x"}}
made = flow_new.sync(client=client, body=FlowNewBody(request=FlowNew.from_dict(plan)))
claimed = claim.sync(client=client, body=ClaimBody(request=ClaimRequest()))
[held] = claimed.outcome.claims
how = HowType0(done=EvidenceType2(no_change="nothing to change"))
request = FinishRequest(id=held.task.id, fence=held.lease.token, how=how, message="done")
done = finish.sync(client=client, body=FinishBody(request=request))
print(held.task.id, done.outcome.task.status)
