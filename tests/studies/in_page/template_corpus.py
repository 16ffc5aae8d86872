"""Chat templates in the styles of public models, idioms that such templates use, and random conversations."""

# ruff: noqa: E501 - templates as they are written

from __future__ import annotations

import random
from typing import Any

Conversation = dict[str, Any]  # messages, and the other variables of a template

_CHATML = "{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}"
_CONTENT = "{%- if message.content is string %}{%- set content = message.content %}{%- else %}{%- set content = '' %}{%- endif %}"

FAMILIES = {
    "Gemma 2": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}
{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate') }}{% endif %}
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}""",
    "Gemma 3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] ~ '\n\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}""",
    "Granite": """{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = "Knowledge Cutoff Date: April 2024.\\nToday's Date: " + strftime_now('%B %d, %Y') + "." %}
    {%- if tools and documents %}{%- set system_message = system_message + " Use tools and documents." %}
    {%- elif tools %}{%- set system_message = system_message + " Use tools." %}{%- endif %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '<|start_of_role|>system<|end_of_role|>' + system_message + '<|end_of_text|>\\n' }}
{%- if tools %}{{- '<|start_of_role|>tools<|end_of_role|>' }}{{- tools | tojson(indent=4) }}{{- '<|end_of_text|>\\n' }}
{%- endif %}
{%- for message in loop_messages %}
    {{- '<|start_of_role|>' + message['role'] + '<|end_of_role|>' + (message['content'] or '') + '<|end_of_text|>\\n' }}
    {%- if loop.last and add_generation_prompt %}{{- '<|start_of_role|>assistant' }}
        {%- if controls %}{{- ' ' + controls | tojson() }}{%- endif %}{{- '<|end_of_role|>' }}
    {%- endif %}
{%- endfor %}""",
    "LFM2": """{{- bos_token -}}
{%- set system_prompt = "" -%}{%- set ns = namespace(system_prompt="", last_assistant_index=-1) -%}
{%- if messages[0]["role"] == "system" -%}{%- set ns.system_prompt = messages[0]["content"] -%}
{%- set messages = messages[1:] -%}{%- endif -%}
{%- if tools -%}{%- set ns.system_prompt = ns.system_prompt + ("\\n" if ns.system_prompt else "") + "List of tools: [" -%}
    {%- for tool in tools -%}{%- if tool is not string -%}{%- set tool = tool | tojson -%}{%- endif -%}
        {%- set ns.system_prompt = ns.system_prompt + tool -%}
        {%- if not loop.last -%}{%- set ns.system_prompt = ns.system_prompt + ", " -%}{%- endif -%}
    {%- endfor -%}
    {%- set ns.system_prompt = ns.system_prompt + "]" -%}
{%- endif -%}
{%- if ns.system_prompt -%}{{- "<|im_start|>system\\n" + ns.system_prompt + "<|im_end|>\\n" -}}{%- endif -%}
{%- for message in messages -%}{%- if message["role"] == "assistant" -%}{%- set ns.last_assistant_index = loop.index0 -%}
{%- endif -%}{%- endfor -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\\n" -}}
    {%- set content = message["content"] -%}
    {%- if content is not string -%}{%- set content = content | tojson -%}{%- endif -%}
    {%- if message["role"] == "assistant" and loop.index0 != ns.last_assistant_index and "</think>" in content -%}
        {%- set content = content.split("</think>")[-1] | trim -%}
    {%- endif -%}
    {%- if message["role"] == "tool" -%}{%- set content = "<|tool_response_start|>" + content + "<|tool_response_end|>" -%}
    {%- endif -%}
    {{- content + "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|im_start|>assistant\\n" -}}{%- endif -%}""",
    "Llama 2": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}
{% set system_message = false %}{% endif %}{% for message in loop_messages %}
{% if loop.index0 == 0 and system_message != false %}
{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}
{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}
{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "Llama 3": """{{- bos_token }}
{%- if custom_tools is defined %}{%- set tools = custom_tools %}{%- endif %}
{%- if not tools_in_user_message is defined %}{%- set tools_in_user_message = true %}{%- endif %}
{%- if not date_string is defined %}{%- if strftime_now is defined %}{%- set date_string = strftime_now("%d %b %Y") %}
{%- else %}{%- set date_string = "26 Jul 2024" %}{%- endif %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}
{%- set messages = messages[1:] %}{%- else %}{%- set system_message = "" %}{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}{%- if tools is not none %}{{- "Environment: ipython\\n" }}{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
{%- endif %}{{- system_message }}{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}{%- set first_user_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}{%- else %}{{- raise_exception("No first user message!") }}{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
    {%- for t in tools %}{{- t | tojson(indent=4) }}{{- "\\n\\n" }}{%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}{{- raise_exception("only single tool-calls") }}{%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}{{- '"parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}{{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}
""",
    "SmolLM2": """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{ '<|im_start|>system\\nYou are a helpful AI assistant<|im_end|>\\n' }}{% endif %}
{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "Mistral": """{%- if messages[0]["role"] == "system" %}{%- set system_message = messages[0]["content"] %}
{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("After the optional system message, conversation roles must alternate") }}
        {%- endif %}{%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}{%- set tool = tool.function %}{{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}
                    {%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}{{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}{{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " + message["content"] + "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}{{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 9 %}{{- raise_exception("Tool call IDs") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}
        {%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}{{- '"call_id": "' ~ message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported") }}{%- endif %}
{%- endfor %}""",
    "Phi-3": """{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}
{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}{% else %}
{{ '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' }}{% endif %}{% endfor %}
{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}""",
    "Qwen2.5": """{%- if tools %}{{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- else %}{{- 'You are Qwen.' }}{%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}{%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}{{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}{{- '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}{%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}{{- '<|im_start|>' + message.role }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}{{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}{{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- message.content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
""",
    "Qwen3": """{%- if tools %}{{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}{{- "<|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}"""
    + _CONTENT
    + """
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}"""
    + _CHATML
    + """
    {%- elif message.role == "assistant" %}{%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
            {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content }}{%- endif %}
        {%- else %}{{- '<|im_start|>' + message.role + '\\n' + content }}{%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<tool_call>\\n{"name": "' }}{{- tool_call.name }}{{- '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}{{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' }}{{- content }}{{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}""",
    "Qwen3.5": """{%- macro render_content(content, counted) %}
    {%- if content is string %}{{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for item in content %}
            {%- if 'image' in item or 'image_url' in item or item.type == 'image' %}{{- '<|image_pad|>' }}
            {%- elif 'text' in item %}{{- item.text }}
            {%- else %}{{- raise_exception('Unexpected item type in content.') }}{%- endif %}
        {%- endfor %}
    {%- elif content is none or content is undefined %}{{- '' }}
    {%- else %}{{- raise_exception('Unexpected content type.') }}{%- endif %}
{%- endmacro %}
{%- for message in messages %}
    {%- set content = render_content(message.content, true)|trim %}
    {%- if message.role == "system" and not loop.first %}{{- raise_exception('System message must be at the beginning.') }}{%- endif %}
    {%- if message.role == "assistant" and message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
        {{- '<|im_start|>assistant\\n' + content }}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {%- if loop.first %}{%- if content|trim %}{{- '\\n\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}
                {%- else %}{{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}{%- endif %}
            {%- else %}{{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}{%- endif %}
            {%- if tool_call.arguments is defined %}
                {%- for args_name, args_value in tool_call.arguments|items %}
                    {{- '<parameter=' + args_name + '>\\n' }}
                    {%- set args_value = args_value | tojson | safe if args_value is mapping or (args_value is sequence and args_value is not string) else args_value | string %}
                    {{- args_value }}{{- '\\n</parameter>\\n' }}
                {%- endfor %}
            {%- endif %}{{- '</function>\\n</tool_call>' }}
        {%- endfor %}{{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>\\n' }}
        {%- elif loop.last %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- else %}"""
    + _CHATML
    + """{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n<think>\\n' }}{%- endif %}""",
    "SmolLM3": """{# the defaults #}
{%- if enable_thinking is not defined -%}{%- set enable_thinking = true -%}{%- endif -%}
{%- if messages[0].role == "system" -%}
  {%- set system_message = messages[0].content -%}
  {%- if "/no_think" in system_message -%}{%- set reasoning_mode = "/no_think" -%}
  {%- elif "/think" in system_message -%}{%- set reasoning_mode = "/think" -%}{%- endif -%}
  {%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{%- if reasoning_mode is not defined -%}{%- set reasoning_mode = "/think" if enable_thinking else "/no_think" -%}{%- endif -%}
{{- "<|im_start|>system\\n" -}}{{- "## Metadata\\n\\n" -}}
{%- set today = strftime_now("%d %B %Y") -%}{{- "Today Date: " ~ today ~ "\\n" -}}{{- "Reasoning Mode: " + reasoning_mode + "\\n\\n" -}}
{%- if custom_instructions -%}{{- custom_instructions + "\\n\\n" -}}{%- endif -%}
{%- if xml_tools or python_tools or tools -%}
  {%- set ns = namespace(xml_tool_string="<tools>") -%}
  {%- for tool in tools[:] -%}{%- set ns.xml_tool_string = ns.xml_tool_string ~ (tool | string) ~ "\\n" -%}{%- endfor -%}
  {{- ns.xml_tool_string + "</tools>" -}}
{%- endif -%}{{- "<|im_end|>\\n" -}}
{%- for message in messages -%}
    {%- set content = message.content if message.content is string else "" -%}
    {%- if message.role == "user" -%}{{ "<|im_start|>" + message.role + "\\n"  + content + "<|im_end|>\\n" }}
    {%- elif message.role == "assistant" -%}
        {% generation %}
        {%- if reasoning_mode == "/think" -%}{{ "<|im_start|>assistant\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}
        {%- else -%}{{ "<|im_start|>assistant\\n" + "<think>\\n\\n</think>\\n" + content.lstrip("\\n") + "<|im_end|>\\n" }}{%- endif -%}
        {% endgeneration %}
    {%- elif message.role == "tool" -%}{{ "<|im_start|>" + "user\\n"  + content + "<|im_end|>\\n" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{%- if reasoning_mode == "/think" -%}{{ "<|im_start|>assistant\\n" }}
{%- else -%}{{ "<|im_start|>assistant\\n" + "<think>\\n\\n</think>\\n"  }}{%- endif -%}{%- endif -%}""",
}

_EACH = "{{% for m in messages %}}{0}|{{% endfor %}}"  # an idiom for every message, whose content may be anything
_TEXT = "{{% for m in messages if m.content is string %}}{{% set c = m.content %}}{0}|{{% endfor %}}"  # for every text

IDIOMS = [
    _EACH.format("{{ m }}"),
    _EACH.format("{{ m.content }}{{ m.content is none }}{{ m.content is string }}{{ m.content is mapping }}"),
    _EACH.format("{{ m.content | string | length }}{{ m | length }}"),
    _EACH.format("{{ m | tojson }}{{ m.content | tojson(ensure_ascii=true) }}"),
    _EACH.format("{{ m | tojson(indent=2) }}{{ m | tojson(separators=(',', ':')) }}{{ m | tojson(sort_keys=true) }}"),
    _EACH.format("{{ m.items() }}{{ m.keys() | list }}{{ m.values() | list }}"),
    _EACH.format("{% for k, v in m.items() %}{{ k }}={{ v }};{% endfor %}"),
    _EACH.format("{% for k, v in m | dictsort %}{{ k }}={{ v | string | upper }};{% endfor %}"),
    _EACH.format("{% for k in m %}{{ k ~ ':' ~ m[k] }}{{ ', ' if not loop.last }}{% endfor %}"),
    _EACH.format("{{ m.get('tool_calls') }}{{ m.get('name', 'nobody') }}{{ m['name'] is defined }}{{ 'name' in m }}"),
    _EACH.format("{{ m.content or 'nothing' }}{{ m.content and 'something' }}{{ not m.content }}"),
    _EACH.format("{{ m.content | default('none', true) }}{{ m.missing | default('absent') }}{{ m.missing | d }}"),
    _EACH.format("{{ 'x' ~ m.content ~ none ~ true ~ 1 ~ 1.5 }}"),
    _EACH.format("{{ (m.tool_calls or []) | map(attribute='function.name') | join(', ') }}"),
    _EACH.format("{% if m.tool_calls %}{{ m.tool_calls[0].function.arguments }}{{ m.tool_calls | length }}{% endif %}"),
    _EACH.format("{% if m.tool_calls %}{{ m.tool_calls | map(attribute='id', default='no') | list }}{% endif %}"),
    _EACH.format("{% for t in m.tool_calls or [] %}{% set f = t.function %}{{ f.name }}({{ f.arguments | tojson }}){% else %}-{% endfor %}"),
    _EACH.format("{% if m.content is iterable and m.content is not string %}{% for p in m.content %}{{ p }};{% endfor %}{% endif %}"),
    _EACH.format("{% if m.content is sequence and m.content is not string and m.content is not mapping %}{{ m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('\\n') }}{% endif %}"),
    _EACH.format("{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"),
    _EACH.format("{{ loop.cycle('a', 'b', 'c') }}{{ loop.changed(m.role) }}{{ loop.depth }}{{ loop.previtem.role if loop.previtem }}"),
    _EACH.format("{% if loop.index == 2 %}{% continue %}{% endif %}{{ m.role }}{% if loop.index0 == 3 %}!{% break %}{% endif %}"),
    _EACH.format("{% for i in range(5) %}{{ i }}{% if i == 1 %}{% continue %}{% endif %},{% if i > 2 %}{% break %}{% endif %}{% endfor %}"),
    _TEXT.format("{{ c.strip() }}/{{ c.lstrip() }}/{{ c.rstrip() }}/{{ c.strip('\\n') }}/{{ c.lstrip(' \\n<') }}/{{ c.rstrip('>e ') }}"),
    _TEXT.format("{{ c | trim }}/{{ c | trim('\\n') }}/{{ c | upper }}/{{ c | lower }}/{{ c | capitalize }}/{{ c | title }}"),
    _TEXT.format("{{ c.upper() }}/{{ c.lower() }}/{{ c.title() }}/{{ c.capitalize() }}/{{ c.swapcase() }}"),
    _TEXT.format("{{ c | length }}{{ c[0] }}{{ c[-1] }}{{ c[1:3] }}{{ c[:-1] }}{{ c[::-1] }}{{ c[::2] }}{{ c[-3:] }}{{ c | reverse }}"),
    _TEXT.format("{{ c.split() }}{{ c.split(' ') }}{{ c.split('\\n', 1) }}{{ c.rsplit(None, 1) }}{{ c.split(maxsplit=1) }}{{ c.splitlines() }}"),
    _TEXT.format("{{ c.split('</think>')[0].split('<think>')[-1] }}/{{ c.split('</think>')[-1].lstrip('\\n') }}"),
    _TEXT.format("{{ c.startswith('<') }}{{ c.endswith(('>', '!')) }}{{ c.find('a') }}{{ c.rfind('e') }}{{ c.count('e') }}{{ 'é' in c }}"),
    _TEXT.format("{{ c.replace('a', 'b') }}/{{ c.replace('', '-', 2) }}/{{ c | replace('\\n', ' ') }}/{{ c | replace('e', 'E', 1) }}"),
    _TEXT.format("{{ c.partition(' ') }}{{ c.rpartition('e') }}{{ c.removeprefix('<think>') }}{{ c.removesuffix('!') }}"),
    _TEXT.format("{{ c.isalpha() }}{{ c.isdigit() }}{{ c.isspace() }}{{ c.isupper() }}{{ c.islower() }}{{ c.isalnum() }}{{ c.isprintable() }}"),
    _TEXT.format("{{ c | e }}{{ [c, [c]] }}{{ {'text': c, c: 1} }}{{ (c,) }}"),
    _TEXT.format("{{ c | indent }}/{{ c | indent(2, true) }}/{{ c | indent(width='> ', blank=true) }}"),
    _TEXT.format("{{ '%s and %r' | format(c, c) }}/{{ '%5.1f|%03d|%-4s|%x' % (1.25, 7, 'a', 255) }}/{{ 'a{}b{}'.format(c, 1) }}"),
    _TEXT.format("{{ c.center(9, '*') }}{{ c.ljust(4) }}{{ c.rjust(4) }}{{ '-4'.zfill(5) }}"),
    _TEXT.format("{{ ', '.join([c, 'x']) }}{{ [c, none, 1, true] | join('+') }}{{ c | list | unique | list }}"),
    "{{ messages }}{{ messages | length }}{{ messages[0] }}{{ messages[-1].role }}{{ messages[99] }}{{ messages[99] is undefined }}",
    "{{ messages | map(attribute='role') | list }}{{ messages | map(attribute='role') | unique | join(',') }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ messages | rejectattr('role', 'in', ['user', 'system']) | map(attribute='role') | list }}",
    "{{ (messages | selectattr('role', '==', 'user') | list | last).content }}{{ (messages | first).role }}",
    "{% if messages | selectattr('role', 'equalto', 'nobody') %}a generator is true{% endif %}",
    "{% set roles = messages | map(attribute='role') %}{{ roles | join }}{{ roles | join }}",
    "{% set ns = namespace(n=0, found=false, texts=[]) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set ns.texts = ns.texts + [m.role] %}{% endfor %}{{ ns.n }}{{ ns.texts }}{{ ns.found }}",
    "{% set x = 1 %}{% for m in messages %}{{ x }}{% set x = x + 1 %}{{ x }}{% endfor %}{{ x }}",
    "{% set messages = messages[1:] if messages[0].role == 'system' else messages %}{% for m in messages %}{{ m.role }}{% else %}empty{% endfor %}",
    "{% macro turn(role, text='', end='<end>') %}{{ role }}:{{ text }}{{ end }}{% endmacro %}{% for m in messages %}{{ turn(m.role, m.content) }}{{ turn(role=m.role, end='') | trim }}{% endfor %}",
    "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% for m in messages %}{% call wrap(m.role) %}{{ m.content }}{% endcall %}{% endfor %}",
    "{% macro many() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ many(1, 'a', x=2) }}",
    "{% set block %}\n{% for m in messages %}{{ m.role }}\n{% endfor %}\n{% endset %}{{ block | trim }}{{ block | length }}",
    "{% filter upper %}{% for m in messages %}{{ m.role }}{% endfor %}{% endfilter %}{% with a = 1, b = messages | length %}{{ a + b }}{% endwith %}",
    "{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7 / 2 }} {{ 4 / 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 1e3 }} {{ 1.0 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 10 ** 20 }} {{ 1e16 }} {{ 1e-5 }} {{ 0.1 + 0.2 }}",
    "{{ 'a' * 3 }} {{ [1] * 2 + [3] }} {{ (1, 2) + (3,) }} {{ true + true }} {{ 1 == 1.0 }} {{ 1 < 2 < 3 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ not true }} {{ none }}",
    "{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 1 is number }} {{ 1.5 is float }} {{ 1 is integer }} {{ true is boolean }} {{ 'A' is upper }} {{ 'a' is in 'abc' }} {{ none is none }} {{ x is defined }} {{ x is not defined }} {{ 1 is eq 1 }} {{ range is callable }}",
    "{{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ [3, 1, 2] | sort(reverse=true) }} {{ [1, 2, 3] | sum }} {{ [1, 5, 2] | max }} {{ ['b', 'A'] | min }} {{ messages | sort(attribute='role') | map(attribute='role') | join(' ') }}",
    "{{ 2.5 | round }} {{ 3.14159 | round(2) }} {{ 2.675 | round(2) }} {{ 42 | round }} {{ 2.1 | round(0, 'ceil') }} {{ '3' | int }} {{ 'x' | int(7) }} {{ '2.9' | int }} {{ '1.5' | float }} {{ -3 | abs }} {{ 3.9 | int }}",
    "{{ range(5) | list }} {{ range(1, 10, 3) | list }} {{ range(3, 0, -1) | list }} {{ range(3) }} {{ (range(4) | list)[1:] }} {{ dict(a=1, b='x') }} {{ {'a': 1}.items() | list }} {{ {'a': {'b': [1, none]}}.a.b[1] }}",
    "  {% if true %}\n  x\n  {%- endif %}\n\n{{ 'a' }}\n{# c #}\n  {#- d -#}  \n b\n{%+ if true %} y{% endif +%}\n z {{- 'q' -}} \n{% raw %}{{ raw }}{% endraw %}\n",
    "{% if messages[0].role == 'system' %}S{% elif messages[0].role == 'user' and messages | length > 1 %}U+{% else %}other{% endif %}{{ 'b' if messages else 'c' }}{{ ('q' if false) }}",
    "{{ tools | length if tools else 0 }}{% for t in tools or [] %}{{ t.function.name }}{{ t.function.parameters.properties | tojson }}{{ t }}{% endfor %}{{ tools is none }}{{ documents is none }}",
    "{% for t in tools or [] %}{% for name, p in t.function.parameters.properties.items() %}{{ name }}: {{ p.type | upper }}{{ ' (required)' if name in t.function.parameters.required }}\n{% endfor %}{% endfor %}",
    "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token is defined }}{{ (bos_token, eos_token) }}",
    "{% set c = cycler('a', 'b') %}{% set j = joiner('; ') %}{% for m in messages %}{{ j() }}{{ c.next() }}{{ m.role }}{% endfor %}{{ c.current }}",
    "{% for m in messages %}{% for p in [1, 2] %}{{ loop.depth }}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), (4, (5, 6))] %}{{ a }}{{ b }}{{ c }};{% endfor %}{% set d, e = 'xy' %}{{ d }}{{ e }}",
    "{{ \"it's\" }}{{ ['it\\'s', 'say \"x\"', 'both\\'\"'] }}{{ '\\u00e9\\x41\\t\\\\' }}{{ ['\\u200b', '\\x07', '\U0001f600', '\\n'] }}",
    "{% for m in messages %}{% set role = {'assistant': 'model', 'user': 'human'}[m.role] | default(m.role) %}{{ role }}{% endfor %}",
    "{{ '<b>' | e }}{{ ('<b>' | safe) ~ '<' }}{{ '<i>' + ('<b>' | safe) }}{{ ('a' | e) == 'a' }}",
    "{{ undefined_name }}{{ undefined_name | length }}{{ undefined_name ~ 'x' }}{{ undefined_name == other }}{% for x in undefined_name %}y{% endfor %}{{ 'a' in undefined_name }}",
]  # fmt: skip

TEMPLATES = {**FAMILIES, **{f"idiom {number}": text for number, text in enumerate(IDIOMS)}}

_WORDS = [
    "", " ", "hello", "  spaced  out ", "line\nbreaks\n\n", "\n\n    indented\n", "é ÀÉÎ ß İ ſ", "日本語", "😀👩‍👩‍👧", "𝔘𝔫𝔦", "it's", 'say "x"',
    "<think>\nwhy\n</think>\n\nanswer", "<tool_response>x</tool_response>", "{{ 1 + 1 }}{% if %}", "a\u00a0b\u2028c\u0085d\x1ce", "\ufeffx", "tab\tand\x00\x07",
    "ΑΣ ΟΔΟΣ.", "ǆ ﬁ ᾳ", "1 ² ٣ ½", "/no_think be brief", "<|im_end|>", "\\n \\ back", "Title Case words-here (and) [more]", "x" * 60, "\u200b\u200d", "%s {} {0}", "'", "e\u0301",
]  # fmt: skip


def _text(chance: random.Random) -> str:
    return " ".join(chance.choices(_WORDS, k=chance.choice((1, 1, 1, 2, 4))))


def _json(chance: random.Random, depth: int = 0) -> Any:
    """A value of JSON that JavaScript reads as Python does: no 1.0, which is 1 there, and no keys that are numbers."""
    kind = chance.randrange(9 if depth < 3 else 6)
    if kind < 6:
        return (
            None,
            True,
            False,
            _text(chance),
            chance.randint(-(10**6), 10**6),
            chance.choice((1.5, -0.25, 1e-7, 2.5e21)),
        )[kind]
    if kind < 7:
        return [_json(chance, depth + 1) for _ in range(chance.randrange(3))]
    return {f"{chance.choice('abcé')}{number}x": _json(chance, depth + 1) for number in range(chance.randrange(4))}


def _content(chance: random.Random) -> Any:
    kind = chance.randrange(10)
    if kind < 7:
        return _text(chance)
    if kind < 8:
        return None
    if kind < 9:
        return [{"type": "text", "text": _text(chance)}, {"type": "image"}][: chance.randint(1, 2)]
    return _json(chance)


def _call(chance: random.Random) -> dict[str, Any]:
    arguments = {name: _json(chance) for name in chance.sample(["city", "days", "unité"], chance.randint(0, 3))}
    call = {"type": "function", "function": {"name": chance.choice(("weather", "f")), "arguments": arguments}}
    return {**call, "id": "abcdefghi"} if chance.random() < 0.7 else call


def _tool(chance: random.Random) -> dict[str, Any]:
    properties = {name: {"type": kind} for name, kind in (("city", "string"), ("days", "integer"))}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    return {"type": "function", "function": {"name": "weather", "description": _text(chance), "parameters": parameters}}


def conversation(chance: random.Random) -> Conversation:
    """Messages of every kind, and the other variables of a template. Half are such as most templates accept."""
    plain = chance.random() < 0.5
    content = _text if plain else _content
    messages: list[dict[str, Any]] = []
    if chance.random() < 0.5:
        messages.append({"role": "system", "content": content(chance)})
    for turn in range(chance.randint(1, 5)):
        role = (
            ("user", "assistant")[turn % 2]
            if plain or chance.random() < 0.7
            else chance.choice(("tool", "user", "assistant"))
        )
        message: dict[str, Any] = {"role": role, "content": content(chance)}
        if role == "assistant" and chance.random() < 0.4:
            message["tool_calls"] = [_call(chance) for _ in range(chance.randint(0, 2))]
        if role == "tool" and chance.random() < 0.7:
            message |= {"tool_call_id": "abcdefghi", "name": "weather"}
        if not plain and chance.random() < 0.2:
            message["extra"] = _json(chance)
        messages.append(message)
    variables: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"}
    if chance.random() < 0.3:
        variables["enable_thinking"] = chance.random() < 0.5
    tools = [_tool(chance) for _ in range(chance.randint(1, 2))] if chance.random() < 0.4 else None
    return {"messages": messages, "variables": variables, "tools": tools}


def conversations(seed: int, count: int) -> list[Conversation]:
    chance = random.Random(seed)
    return [conversation(chance) for _ in range(count)]
