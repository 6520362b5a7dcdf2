"""The chat templates that families with media publish: what they write of a chat here is what transformers writes."""

from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from ramet.ipc.media import MediaKind, MediaToken, MediaTokens
from ramet.ipc.messages import Chat
from ramet.runtime.text.chats import Chats
from ramet.runtime.text.template_files import TemplateSources

TEXTS = "{% for content in message['content'] | selectattr('type', 'equalto', 'text') %}"
LLAVA = (
    "{% for message in messages %}{% if message['role'] != 'system' %}{{ message['role'].upper() + ': '}}{% endif %}"
    "{# Render all images first #}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>\n' }}{% endfor %}"
    "{# Render all text next #}{% if message['role'] != 'assistant' %}"
    f"{TEXTS}{{{{ content['text'] + ' '}}}}{{% endfor %}}"
    f"{{% else %}}{TEXTS}{{% generation %}}{{{{ content['text'] + ' '}}}}{{% endgeneration %}}{{% endfor %}}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}"
)
ONEVISION = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + ' '}}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'image') %}{{ '<image>' }}{% endfor %}"
    "{% for content in message['content'] | selectattr('type', 'equalto', 'video') %}{{ '<video>' }}{% endfor %}"
    f"{TEXTS}{{{{ '\n' + content['text'] }}}}{{% endfor %}}{{{{'<|im_end|>'}}}}{{% endfor %}}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
QWEN2_VL = (
    "{% set image_count = namespace(value=0) %}{% set video_count = namespace(value=0) %}"
    "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}"
    "{% if content['type'] == 'image' or 'image' in content or 'image_url' in content %}"
    "{% set image_count.value = image_count.value + 1 %}"
    "{% if add_vision_id %}Picture {{ image_count.value }}: {% endif %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content['type'] == 'video' or 'video' in content %}{% set video_count.value = video_count.value + 1 %}"
    "{% if add_vision_id %}Video {{ video_count.value }}: {% endif %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA3 = (
    "{%- if messages[0]['role'] == 'system' -%}{%- if messages[0]['content'] is string -%}"
    "{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}"
    "{%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}"
    "{%- set loop_messages = messages[1:] -%}"
    "{%- else -%}{%- set first_user_prefix = '' -%}{%- set loop_messages = messages -%}{%- endif -%}"
    "{%- for message in loop_messages -%}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{%- endif -%}"
    "{%- if (message['role'] == 'assistant') -%}{%- set role = 'model' -%}"
    "{%- else -%}{%- set role = message['role'] -%}{%- endif -%}"
    "{{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else '') }}"
    "{%- if message['content'] is string -%}{{ message['content'] | trim }}"
    "{%- elif message['content'] is iterable -%}{%- for item in message['content'] -%}"
    "{%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}"
    "{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}{%- endfor -%}"
    "{%- else -%}{{ raise_exception('Invalid content type') }}{%- endif -%}{{ '<end_of_turn>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}{%- endif -%}"
)
SMOLVLM = (
    "<|im_start|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
QWEN2_AUDIO = (
    "{% set audio_count = namespace(value=0) %}{% for message in messages %}"
    "{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "{% endif %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['content'] is string %}{{ message['content'] }}<|im_end|>\n{% else %}"
    "{% for content in message['content'] %}"
    "{% if 'audio' in content or 'audio_url' in content or message['type'] == 'audio' %}"
    "{% set audio_count.value = audio_count.value + 1 %}"
    "Audio {{ audio_count.value }}: <|audio_bos|><|AUDIO|><|audio_eos|>\n"
    "{% elif 'text' in content %}{{ content['text'] }}{% endif %}{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokens(**placeholders: str) -> MediaTokens:
    return {MediaKind(kind): MediaToken(text, text, 5) for kind, text in placeholders.items()}


CASES = [
    (LLAVA, tokens(image="<image>")), (ONEVISION, tokens(image="<image>", video="<video>")),
    (QWEN2_VL, tokens(image="<|image_pad|>", video="<|video_pad|>")), (GEMMA3, tokens(image="<start_of_image>")),
    (SMOLVLM, tokens(image="<image>")), (QWEN2_AUDIO, tokens(audio="<|AUDIO|>")),
]  # fmt: skip
NAMES = ["llava", "onevision", "qwen2-vl", "gemma3", "smolvlm", "qwen2-audio"]


def texts(*words: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": word} for word in words]


@pytest.mark.parametrize(("source", "media"), CASES, ids=NAMES)
def test_a_chat_is_written_as_transformers_writes_it(source: str, media: MediaTokens) -> None:
    pieces = [{"type": kind.value, kind.value: ""} for kind in media for _ in range(2)]
    turns = [
        {"role": "user", "content": [pieces[0], *texts("What is it?"), *pieces[1:], *texts("And these?")]},
        {"role": "assistant", "content": texts("A cat.")},
        {"role": "user", "content": texts("Where?")},
    ]
    shorter = [{**turn, "content": turn["content"][0]["text"]} for turn in turns[1:]]  # as most clients write texts
    (expected,), _ = render_jinja_template([turns], chat_template=source, add_generation_prompt=True)
    chats = Chats(TemplateSources(default=source)).with_media(media)
    assert chats.render(Chat([turns[0], *shorter])) == expected
    for token in media.values():
        assert expected.count(token.placeholder) == 2


@pytest.mark.parametrize(("source", "media"), CASES, ids=NAMES)
def test_a_chat_of_texts_is_written_as_transformers_writes_its_parts(source: str, media: MediaTokens) -> None:
    said = [("user", "What is it?"), ("assistant", "A cat."), ("user", "Where?")]
    if source is GEMMA3:  # the only one that writes a system turn into the first one
        said.insert(0, ("system", "Be short."))
    (expected,), _ = render_jinja_template(
        [[{"role": role, "content": texts(text)} for role, text in said]], chat_template=source,
        add_generation_prompt=True,
    )  # fmt: skip
    chats = Chats(TemplateSources(default=source)).with_media(media)
    assert chats.render(Chat([{"role": role, "content": text} for role, text in said])) == expected
