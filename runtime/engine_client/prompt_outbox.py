"""Prompts on their way to the tokenizers: whose they are, their adapters' generations, uids, and the worker."""

from collections.abc import Sequence
from itertools import count, islice

from ramet.ipc.message import Uid
from ramet.ipc.messages import Generate, GenerateAll
from ramet.runtime.access.owner import Owner
from ramet.runtime.engine_client.adapters import AdapterNames
from ramet.runtime.engine_client.calls import Tokenizers
from ramet.runtime.engine_client.open_requests import OpenRequests
from ramet.runtime.engine_client.prompt import Prompt, weight_of
from ramet.runtime.engine_client.request_log import RequestLog
from ramet.runtime.engine_client.sequences import SequenceTable
from ramet.runtime.engine_client.submission import GeneratedSequence, Submission
from ramet.runtime.errors import ClientError


class PromptOutbox:
    def __init__(
        self,
        tokenizers: Tokenizers,
        sequences: SequenceTable,
        requests: OpenRequests,
        adapters: AdapterNames,
        request_log: RequestLog,
    ) -> None:
        self._tokenizers, self._sequences, self._requests = tokenizers, sequences, requests
        self._adapters, self._request_log = adapters, request_log
        self._uids = count(1)

    def marked(self, prompts: Sequence[Prompt], owner: Owner) -> Sequence[Prompt]:
        """The prompts as they are sent. Raises ClientError where they name an adapter that is not loaded."""
        marked = []
        for prompt in prompts:
            spec = prompt.spec.owned_by(owner.name, owner.scope) if owner.name else prompt.spec
            if spec.lora is not None:
                try:
                    spec = self._adapters.sent(spec)
                except ClientError as error:
                    raise prompt.places.as_written(error.record) from None
            marked.append(prompt if spec is prompt.spec else prompt._replace(spec=spec))
        return marked

    def send(self, prompts: Sequence[Prompt], submission: Submission) -> None:
        num, recording = weight_of(prompts).num_sequences, submission.origin.recording
        self._requests.sent(submission, num)
        if recording is not None and prompts:
            recording.sent(prompts[0].spec, len(prompts), num, submission.streaming)
        if submission.as_batch and len(prompts) > 1:
            worker = next(self._tokenizers.turns)
            batch = GenerateAll([self._generate(prompt, submission, worker) for prompt in prompts])
            self._tokenizers.outboxes[worker].send(batch)
            return
        for prompt in prompts:
            worker = next(self._tokenizers.turns)
            self._tokenizers.outboxes[worker].send(self._generate(prompt, submission, worker))

    def _generate(self, prompt: Prompt, submission: Submission, worker: int) -> Generate:
        """The prompt's message, with its samples in the table."""
        uids = list(map(Uid, islice(self._uids, prompt.spec.params.n)))
        for sample, uid in enumerate(uids):
            sequence = GeneratedSequence(uid, len(submission.sequences), worker, prompt, submission, sample)
            submission.sequences.append(sequence)
            self._sequences.add(sequence)
            if self._request_log.on and not submission.probe:
                self._request_log.begins(sequence)
        traced = submission.origin.recording is not None
        return Generate(uids, prompt.spec, prompt.content, submission.origin.arrival_s, traced)
