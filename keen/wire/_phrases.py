"""How providers word their refusals: a pattern, and a message it was seen in.

Data only; `_overflow` decides. Patterns meet lower-case text with single blanks. `<n>` stands for
a number; `<input>`, `<output>`, `<actual>` (the input, or input and output where the text gives no
split) and `<limit>` are numbers worth keeping: a row without `<limit>` has none to be trusted.
The first row that matches wins, so the particular stands before the general. One table, so it is
longer than a file should be.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal[
    "window",  # the input does not fit; with a split that says it does: the output asked for
    "reserve",  # input and output asked for do not fit together
    "range",  # the output asked for is out of the model's own range
    "bytes",
    "count",
    "image",
    "history",
    "rate",
    "trouble",  # the server's own
    "spent",
    "entitlement",
    "key",
    "rejected",
]
Rows: TypeAlias = tuple[tuple[str, str], ...]

VETOES: Final[dict[Kind, Rows]] = {
    "entitlement": (
        # Anthropic 429
        (
            r"extra usage is required|usage credits required",
            "Extra usage is required for long context requests.",
        ),
        # Anthropic 429
        (
            r"credits required for 1m context",
            "Usage credits required for 1M context · turn on usage credits at the settings page",
        ),
        # Codex
        (
            r"usage[_ ]not[_ ]included",
            "usage_not_included: to use Codex with your ChatGPT plan, upgrade to Plus",
        ),
    ),
    "spent": (
        # OpenAI 429
        (
            r"check your plan and billing|insufficient[_ ]quota",
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        # Anthropic 400
        (
            r"credit balance is too low",
            "Your credit balance is too low to access the Anthropic API. Please go to Plans "
            "& Billing.",
        ),
        # OpenRouter 402, DeepSeek 402
        (r"insufficient (credits|balance|funds)|requires more credits", "Insufficient Balance"),
        # Anthropic 400
        (
            r"reached your specified .{0,12}usage limits|regain access on",
            "You have reached your specified API usage limits. You will regain access on "
            "2026-11-01 at 00:00 UTC.",
        ),
        # Codex 429
        (
            r"(hit|reached) your usage limit|usage limit (has been )?reached",
            "You've hit your usage limit. Try again in 3 hours 12 minutes.",
        ),
        # Bedrock 429
        (
            r"too many tokens per (day|month)",
            "Too many tokens per day, please wait before trying again.",
        ),
        # Groq 429, Gemini 429
        (
            r"(tokens|requests) per (day|month) "
            r"\((tpd|rpd|tpm)\)|(requests|tokens)_?per_?day",
            "Rate limit reached for model `m` on tokens per day (TPD): Limit 500000, Used "
            "499000, Requested 3000. Please try again in 5m45.6s.",
        ),
    ),
    "rate": (
        # Bedrock ThrottlingException
        (r"too many tokens,? please wait", "Too many tokens, please wait before trying again."),
        # Cerebras 429
        (
            r"too many tokens processed",
            "Tokens per minute limit exceeded - too many tokens processed.",
        ),
        # OpenAI 429, Groq 413, Copilot-like texts
        (
            r"tokens per (min|minute|second|hour|day)\b|\b(tpm|rpm|tpd|rpd|itpm|otpm)\b",
            "This request exceeds the limit of 30000 tokens per minute.",
        ),
        # Gemini 429
        (
            r"exceeded your current quota|quota exceeded|resource[_ ]?(has been )?exhausted",
            "You exceeded your current quota. Quota exceeded for metric: "
            "generate_content_free_tier_input_token_count, limit: 125000",
        ),
        # all
        (r"rate[ _-]?limit|too many requests|throttl", "Rate limit reached, try again later."),
        # Anthropic 529, Gemini 503
        (
            r"\boverloaded\b|at capacity|try again later",
            "The model is overloaded. Please try again later.",
        ),
    ),
}
"""Refusals that only look like one for size: asked before any wording about size."""

UNMISTAKABLE: Final[dict[Kind, Rows]] = {
    "image": (
        # OpenRouter 404, llama.cpp 500
        (
            r"support image input|image input is not supported|does(n't| not) support "
            r"(image|vision)",
            "No endpoints found that support image input",
        ),
    ),
    "window": (
        # llama.cpp
        (
            r"request \(<actual> tokens\) exceeds the available context size \(<limit> "
            r"tokens\)",
            "request (40000 tokens) exceeds the available context size (32768 tokens), try "
            "increasing it",
        ),
        # llama.cpp, in the middle of an answer
        (
            r"context size has been exceeded|context shift is disabled|available context "
            r"size",
            "Context size has been exceeded.",
        ),
    ),
}
"""So particular that they count behind every HTTP status."""

REFUSALS: Final[dict[Kind, Rows]] = {
    "history": (
        # Anthropic
        (
            r"tool_use.{0,3} ids were found without .{0,3}tool_result",
            "messages.2: `tool_use` ids were found without `tool_result` blocks immediately "
            "after: t1",
        ),
        # Anthropic
        (
            r"unexpected .{0,3}tool_use_id.{0,3} found in .{0,3}tool_result",
            "messages.0.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1",
        ),
        # Anthropic
        (
            r"thinking.{0,3} (or .{0,3}redacted_thinking.{0,3} )?blocks .{0,60}cannot be "
            r"modified",
            "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot "
            "be modified.",
        ),
        # Anthropic
        (
            r"invalid .{0,3}signature.{0,3} in .{0,3}thinking",
            "messages.1.content.0: Invalid `signature` in `thinking` block",
        ),
        # Anthropic
        (
            r"expected .{0,3}thinking.{0,60} found .{0,3}(tool_use|text)",
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but "
            "found `tool_use`.",
        ),
        # OpenAI Chat
        (
            r"must be followed by tool messages|must be a response to a prece",
            "An assistant message with 'tool_calls' must be followed by tool messages "
            "responding to each 'tool_call_id'.",
        ),
        # OpenAI Responses
        (r"no tool (output|call) found for", "No tool output found for function call call_abc."),
        # OpenAI Responses
        (
            r"without its required (following|preceding) item",
            "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        ),
        # OpenAI Responses
        (
            r"encrypted.?content .{0,80}could not be (verified|decrypted|parsed)",
            "The encrypted content for item rs_1 could not be verified.",
        ),
        # Gemini
        (
            r"missing a .{0,3}thought_?signature|thought.?signature is not valid",
            "Function call is missing a thought_signature in functionCall parts.",
        ),
        # Gemini
        (
            r"number of function response parts|function (call|response) turn comes "
            r"immediately after",
            "Please ensure that the number of function response parts is equal to the number "
            "of function call parts of the function call turn.",
        ),
        # Bedrock
        (
            r"number of toolresult blocks|expected toolresult blocks",
            "The number of toolResult blocks at messages.2.content exceeds the number of "
            "toolUse blocks of previous turn.",
        ),
        # Mistral
        (
            r"not the same number of function calls and responses|unexpected role .{1,12} "
            r"after role",
            "Not the same number of function calls and responses",
        ),
        # DeepSeek, Moonshot
        (
            r"reasoning_content.{0,60} (must be passed back|is missing)|missing "
            r".{0,3}reasoning_content",
            "The reasoning_content in the thinking mode must be passed back to the API.",
        ),
    ),
    "image": (
        # Anthropic, Bedrock
        (
            r"image dimensions exceed|dimensions exceed max allowed size",
            "messages.0.content.1.image.source.base64.data: At least one of the image "
            "dimensions exceed max allowed size for many-image requests: 2000 pixels",
        ),
        # Anthropic
        (
            r"image exceeds .{1,12} maximum|image (is|was) too (large|big|small)",
            "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 "
            "bytes > 5242880 bytes",
        ),
        # Anthropic
        (r"too many images|at most <n> image", "Too many images and documents: 101 + 0 > 100"),
        # Anthropic, OpenAI, Gemini
        (
            r"(could not process|unable to process|cannot process|failed to "
            r"(load|decode|process)) (the |input |this )?image",
            "Could not process image",
        ),
        # OpenAI
        (
            r"(unsupported|invalid) (input )?image|image data you provided does not "
            r"represent",
            "You uploaded an unsupported image. Please make sure your image is valid.",
        ),
        # DeepSeek, Mistral
        (
            r"unknown variant .{0,3}image_url|image_url is only supported|not a multimodal "
            r"model",
            "Failed to deserialize the JSON body: unknown variant `image_url`, expected `text`",
        ),
    ),
    "range": (
        # OpenAI Chat, Groq, Mistral
        (
            r"max_(completion_)?tokens.{0,3} must be (less than or equal to|at most|<=) "
            r"\D?<limit>",
            "max_tokens must be less than or equal to 16384",
        ),
        # OpenAI Chat
        (
            r"tokens is too large: <n>\. this model supports at most <limit> completion "
            r"tokens",
            "max_tokens is too large: 200000. This model supports at most 16384 completion tokens.",
        ),
        # DeepSeek
        (
            r"valid range of max_(completion_|output_)?tokens is \[<n>, ?<limit>\]",
            "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
        ),
        # Gemini (its end is exclusive)
        (
            r"maxoutputtokens value of <n> but the supported range is from <n> "
            r"\(inclusive\) to <beyond> \(exclusive\)",
            "Unable to submit request because it has a maxOutputTokens value of 80000 but "
            "the supported range is from 1 (inclusive) to 65537 (exclusive).",
        ),
        # Gemini
        (
            r"maxoutputtokens value of <n> but the supported range is",
            "it has a maxOutputTokens value of 80000 but the supported range is different",
        ),
        # Anthropic
        (
            r"max_tokens: <n> > <limit>, which is the maximum allowed",
            "max_tokens: 100000 > 64000, which is the maximum allowed number of output "
            "tokens for m",
        ),
        # Bedrock
        (
            r"maximum tokens you requested exceeds the model limit of <limit>",
            "The maximum tokens you requested exceeds the model limit of 8192. Try again "
            "with a maximum tokens value that is lower than 8192.",
        ),
        # OpenAI Responses
        (
            r"max_output_tokens.{0,3}: integer above maximum value.{0,40}<= ?<limit>",
            "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= "
            "128000, but got 200000 instead.",
        ),
    ),
    "rejected": (
        # OpenAI Responses (a value keen would never mean)
        (
            r"max_output_tokens.{0,3}: integer below minimum value",
            "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= "
            "16, but got 1 instead.",
        ),
    ),
    "reserve": (
        # Anthropic, Bedrock
        (
            r"input length and .?max_tokens.? exceed context limit: <input> \+ <output> > "
            r"<limit>",
            "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, "
            "decrease input length or `max_tokens` and try again",
        ),
        # Anthropic, Bedrock
        (
            r"input length and .?max_tokens.? exceed context limit",
            "input length and `max_tokens` exceed context limit",
        ),
        # TGI 422
        (
            r"inputs. tokens \+ .max_new_tokens. must be <= <limit>\. given: <input> "
            r".inputs. tokens and <output>",
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. "
            "Given: 3800 `inputs` tokens and 1000 `max_new_tokens`",
        ),
        # TGI 422
        (
            r"inputs. tokens \+ .max_new_tokens. must be <= <limit>",
            "`inputs` tokens + `max_new_tokens` must be <= 4096",
        ),
        # vLLM
        (
            r"tokens.{0,3} is too large: <output>\. this model's maximum context length is "
            r"<limit> tokens and your request has <input> input tokens",
            "'max_tokens' or 'max_completion_tokens' is too large: 4096. This model's "
            "maximum context length is 4096 tokens and your request has 25 input tokens "
            "(4096 > 4096 - 25).",
        ),
        # vLLM (counts the prompt only as far as it must)
        (
            r"requested <n> output tokens and your prompt contains at least <n> input tokens",
            "This model's maximum context length is 131072 tokens. However, you requested "
            "32000 output tokens and your prompt contains at least 99073 input tokens.",
        ),
    ),
    "window": (
        # vLLM
        (
            r"you passed <input> input tokens and requested <output> output "
            r"tokens.{0,60}context length is only <limit> tokens",
            "You passed 4097 input tokens and requested 0 output tokens. However, the "
            "model's context length is only 4096 tokens, resulting in a maximum input length "
            "of 4096 tokens.",
        ),
        # vLLM (prints the window less max_tokens as the limit)
        (
            r"your request has <actual> input tokens|prompt contains at least <n> input "
            r"tokens",
            "This model's maximum context length is 3 tokens. However, your request has 25 "
            "input tokens. Please reduce the length of the input messages.",
        ),
        # vLLM, old
        (r"max_tokens must be at least 1, got -<n>", "max_tokens must be at least 1, got -1024."),
        # OpenAI Chat, DeepSeek, OpenRouter, vLLM
        (
            r"maximum context length is <limit> tokens.{0,20}you requested (about "
            r")?<actual> tokens",
            "This model's maximum context length is 8192 tokens. However, you requested 9000 "
            "tokens (8500 in the messages, 500 in the completion). Please reduce the length.",
        ),
        # OpenAI Chat
        (
            r"maximum context length is <limit> tokens.{0,20}your messages resulted in "
            r"<actual>",
            "This model's maximum context length is 8192 tokens. However, your messages "
            "resulted in 10000 tokens. Please reduce the length of the messages.",
        ),
        # OpenAI, GPT-5 family
        (
            r"exceeds? the configured limit of <limit> tokens\. your messages resulted in "
            r"<actual>",
            "Input tokens exceed the configured limit of 272000 tokens. Your messages "
            "resulted in 300000 tokens. Please reduce the length of the messages.",
        ),
        # OpenAI Responses
        (
            r"exceeds (the context window of this model|(the|this) model's context window)",
            "Your input exceeds the context window of this model. Please adjust your input.",
        ),
        # SGLang
        (
            r"requested input length.{0,12}? "
            r"?\(?<actual>.{0,40}exceeds.{0,40}maximum.{0,40}? <limit>",
            "Requested input length 40000 exceeds maximum input length 32768",
        ),
        # SGLang
        (
            r"input \(<actual> tokens\) is longer than the model's (maximum )?context "
            r"length \(<limit> tokens\)",
            "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
        ),
        # SGLang
        (
            r"requested input length .{0,60}exceeds .{0,60}maximum",
            "Requested input length of the prompt exceeds the allowed maximum",
        ),
        # Ollama
        (
            r"prompt (is )?too long; exceeded (max )?context length( by <n> "
            r"tokens)?|exceeds the <limit>.token (context )?window",
            "prompt too long; exceeded max context length by 1200 tokens",
        ),
        # LM Studio
        (
            r"greater than the context length \(n_keep: <actual> ?>= ?n_ctx: <limit>\)",
            "The number of tokens to keep from the initial prompt is greater than the "
            "context length (n_keep: 12000>= n_ctx: 4096). Try to load the model with a "
            "larger context length.",
        ),
        # LM Studio, older
        (
            r"trying to keep the first <actual> tokens when context (the "
            r")?overflows.{0,60}context length of only <limit>",
            "Trying to keep the first 5000 tokens when context the overflows. However, the "
            "model is loaded with context length of only 4096 tokens.",
        ),
        # OpenRouter (Poolside)
        (
            r"input length <actual> exceeds the maximum allowed input length of <limit>",
            "Input length 140000 exceeds the maximum allowed input length of 131040 tokens.",
        ),
        # Moonshot
        (
            r"exceeded model token limit: <limit> \(requested: <actual>\)",
            "Invalid request: Your request exceeded model token limit: 262144 (requested: 270000)",
        ),
        # Mistral
        (
            r"prompt contains <actual> tokens.{0,60}too large for model with <limit> "
            r"maximum context",
            "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 "
            "maximum context length",
        ),
        # Mistral
        (
            r"context too long|input too large|couldn't fit with truncation|context is too "
            r"long",
            "Context too long: the input couldn't fit with truncation",
        ),
        # xAI
        (
            r"maximum prompt length is <limit> but the request contains <actual> tokens",
            "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
        ),
        # Groq
        (
            r"reduce the length of the messages or completion",
            "Please reduce the length of the messages or completion.",
        ),
        # LiteLLM
        (
            r"exceeds (the )?(model'?s )?maximum context length( of <limit> tokens| "
            r"\(<limit2>\))?",
            "litellm.ContextWindowExceededError: prompt exceeds the model's maximum context "
            "length of 128,000 tokens",
        ),
        # LiteLLM
        (
            r"contextwindowexceedederror",
            "litellm.BadRequestError: ContextWindowExceededError: the request was too long",
        ),
        # GitHub Copilot
        (
            r"prompt token count of <actual> exceeds the limit of <limit>",
            "prompt token count of 140000 exceeds the limit of 128000",
        ),
        # MiniMax
        (
            r"context window exceeds limit",
            "invalid params, context window exceeds limit (2013)",
        ),
        # DashScope
        (
            r"range of input length should be \[<n>, ?<limit>\]",
            "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, "
            "129024]",
        ),
        # z.ai
        (r"prompt exceeds max length", "Prompt exceeds max length"),
        # z.ai
        (
            r"tokens in request more than max tokens allowed",
            "Tokens in request more than max tokens allowed",
        ),
        # Anthropic, Bedrock
        (
            r"prompt is too long: <actual> tokens > <limit> maximum",
            "The model returned the following errors: prompt is too long: 213462 tokens > "
            "200000 maximum",
        ),
        # Anthropic
        (r"prompt is too long", "prompt is too long"),
        # Gemini
        (
            r"input token count \(<actual>\) exceeds the maximum number of tokens allowed "
            r"\(<limit>\)",
            "The input token count (1196265) exceeds the maximum number of tokens allowed "
            "(1048575).",
        ),
        # Vertex, Bedrock Nova
        (
            r"exceeds the maximum number of (input )?tokens|input tokens exceeds maximum "
            r"length",
            "The input exceeds the maximum number of tokens",
        ),
        # Bedrock
        (
            r"input is too long for requested model|input tokens exceeded",
            "Input is too long for requested model.",
        ),
        # vLLM, SGLang, OpenAI-compatible
        (
            r"maximum context length|context length is only <n>|context[_ ]length[_ "
            r"]exceeded",
            "The request is over the model's maximum context length.",
        ),
    ),
    "bytes": (
        # Moonshot
        (
            r"total message size <n> exceeds limit <n>",
            "Invalid request: total message size 2250000 exceeds limit 2097152",
        ),
        # Anthropic 413
        (
            r"request exceeds the maximum (allowed )?(size|number of "
            r"bytes)|request_too_large",
            "Request exceeds the maximum size",
        ),
        # Bedrock
        (
            r"too many total text bytes|expected maxlength: <n>, actual: <n>",
            "ValidationException: too many total text bytes: 25100000 > 25000000",
        ),
        # Bedrock
        (
            r"value at 'body' failed .{0,80}length less than or equal to",
            "1 validation error detected: Value at 'body' failed to satisfy constraint: "
            "Member must have length less than or equal to 25000000",
        ),
        # Bedrock
        (
            r"expected maxlength: <n>, actual: <n>",
            "Malformed input request: expected maxLength: 20000000, actual: 21000000",
        ),
        # Gemini, proxies
        (
            r"(request )?payload size exceeds|(request entity|payload|content|body) (is "
            r")?too large|string_above_max_length",
            "Request payload size exceeds the limit: 20971520 bytes.",
        ),
    ),
    "count": (
        # Azure OpenAI
        (
            r"messages.{0,3} is too long\. maximum length is <n>",
            "'$.messages' is too long. Maximum length is 2048, but got 2050 items.",
        ),
        # OpenAI
        (
            r"array too long\. expected an array with maximum length",
            "Invalid 'messages': array too long. Expected an array with maximum length 2048, "
            "but got an array with length 2049 instead.",
        ),
    ),
}
"""Refusals for size, images and history: behind 400, 413, 422 and inside a 200."""

CODES: Final[dict[str, Kind]] = {
    "context_length_exceeded": "window",
    "exceed_context_size_error": "window",  # llama.cpp, with n_prompt_tokens and n_ctx beside it
    "model_context_exceeded": "window",
    "prompt_too_long": "window",
    "model_max_prompt_tokens_exceeded": "window",
    "contextwindowexceedederror": "window",
    "context_window_exceeded": "window",
    "1261": "window",  # z.ai
    "max_tokens_exceeded": "rejected",  # Mistral 422: the answer was cut, not the input
    "request_too_large": "bytes",
    "string_above_max_length": "bytes",
    "array_above_max_length": "count",
    "invalid_encrypted_content": "history",
    "invalid_image": "image",
    "invalid_image_format": "image",
    "invalid_image_url": "image",
    "invalid_base64_image": "image",
    "image_too_large": "image",
    "image_too_small": "image",
    "image_parse_error": "image",
    "image_file_too_large": "image",
    "unsupported_image_media_type": "image",
    "insufficient_quota": "spent",
    "usage_limit_reached": "spent",
    "billing_hard_limit_reached": "spent",
    "billing_error": "spent",
    "usage_not_included": "entitlement",
    "rate_limit_exceeded": "rate",
    "rate_limit_error": "rate",
    "resource_exhausted": "rate",
    "throttlingexception": "rate",
    "too_many_requests": "rate",
    "slow_down": "rate",
    "overloaded_error": "rate",
    "server_is_overloaded": "rate",
    "overloaded": "rate",
    "api_error": "trouble",
    "server_error": "trouble",
    "internal_error": "trouble",
    "internal_server_error": "trouble",
    "internalserverexception": "trouble",
    "internalservererror": "trouble",
    "internal": "trouble",
    "unavailable": "trouble",
    "deadline_exceeded": "trouble",
    "timeout_error": "trouble",
    "serviceunavailableexception": "trouble",
    "modelnotreadyexception": "trouble",
    "modeltimeoutexception": "trouble",
    "modelstreamerrorexception": "trouble",
    "modelerrorexception": "trouble",
    "vector_store_timeout": "trouble",
    "invalid_api_key": "key",
    "api_key_invalid": "key",
    "authentication_error": "key",
    "unauthenticated": "key",
    "token_expired": "key",
    "token_revoked": "key",
    "account_deactivated": "key",
    "unrecognizedclientexception": "key",
    "invalidsignatureexception": "key",
    "expiredtokenexception": "key",
    "expiredtoken": "key",
    "incompletesignature": "key",
    "missingauthenticationtoken": "key",
    "permission_error": "entitlement",
    "permission_denied": "entitlement",
    "accessdeniedexception": "entitlement",
    "billing_not_active": "entitlement",
    "organization_deactivated": "key",
}
"""Structured codes, types and statuses, lower case."""
