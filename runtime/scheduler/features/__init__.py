"""What some requests ask beyond tokens: a file for each feature, called for rows that asked for it and for no others.

A new feature that returns something for each token is written into these places, in the order of a request:

1. the field of a request (`ipc/spec.py`) and of the bodies that have it (`runtime/intake/specs.py`),
2. a bit of `RowFlag` (`scheduler/row_flag.py`), set by a `RequestFeature` (`scheduler/request_feature.py`; listed in
   `scheduler/process/compose.py`) or, where nothing is to be refused or kept, by an entry of MARKS (`requests.py`),
3. its own file here: what it knows of a request (a `FeatureState`), what it does when a row begins or ends
   (a `RowFeature`), and which questions it adds to a step, which `planned.py` lists by bit,
4. the question and its answer (`runtime/engine/extras.py`), computed by the runner (`runtime/engine/step_extras.py`),
5. what becomes of the answer (`answers.py`), in a field of `TokenStep` (`ipc/messages.py`),
6. the reply (`runtime/engine_client/sequences.py`, `runtime/intake/reply.py`).

One that only changes how tokens are drawn needs 1 to 3. `runtime/sampling/filters.py` and
`runtime/sampling/penalties.py` say what a new sampling parameter needs.
"""
