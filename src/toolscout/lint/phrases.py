"""The words of attacks, for the scanner.

Each `Phrase` describes sentences in the syntax of RE2, in lower case, in English and some other
languages. All its needs have to match the same sentence, in any order.
"""

from typing import NamedTuple

GAP = "(?:[^ .!?]+ )"
"""One word of a sentence."""


class Phrase(NamedTuple):
    """Sentences that mean the same."""

    code: str
    """The code of the finding."""
    needs: tuple[tuple[str, ...], ...]
    """Of each tuple, one pattern has to match; the first tuple should be the rarest."""
    unless: str = ""


def _describe(code: str, *needs: str | tuple[str, ...], unless: str = "") -> Phrase:
    listed = tuple((need,) if isinstance(need, str) else need for need in needs)
    return Phrase(code, listed, unless)


def _skip(words: int) -> str:
    """Return a pattern for at most so many words of one sentence."""
    return rf"{GAP}{{0,{words}}}"


_USER = r"\b(?:users?|humans?|person|people|anyone|customer|operator)\b"
_NEGATION = r"\b(?:do not|don't|never|must not|mustn't|should not|cannot|under no circumstances)"
_TELL = r"(?:tell|mention|inform|reveal|disclose|notify|show|say|admit|explain|let|bring|report)\b"
_TELLING = r"(?:telling|mentioning|informing|revealing|disclosing|notifying|showing|alerting)\b"
_READ = r"\b(?:read|cat|open|load|look for|fetch|include|take|find|copy|lies|lee|lis|leia)\b"
_HAND_OVER = (
    r"\b(?:pass|put|give|hand over|include|send|append|attach|upload|forward|copy|insert|"
    r"write|provide|post|its (?:text|contents?)|gib|ihren inhalt|pasa|mets|transmets)\b"
    r"|base64|übergib|envía|放入|放进|传入|读取"
)
_FILES = (
    r"\.ssh\b|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|\.aws/|/etc/(?:passwd|shadow)|~/\.env|"
    r"(?:^|[\s/\"'(])\.env\b|\bmcp\.json|\bcredentials\.json|\.netrc|bash_history|\.kube/config|"
    r"\bprivate keys?\b|\bseed phrase|\.gnupg|\bkeychain\b|cookies\.sqlite|\.git-credentials"
)
_PRIVATE = (
    r"system ?prompts?|(?:conversation|chat|message) (?:history|log|so far)|"
    r"(?:initial|hidden|original|secret) (?:instructions|prompts?|rules)|hidden prompt|"
    r"chain of thought|everything the user (?:has )?(?:said|written|told)|"
    r"(?:conversation|chat) with (?:the|this) user|"
    r"systemanweisung\w*|system-?prompts?|(?:prompt|mensaje) (?:système|del sistema|do sistema)|"
    r"historial (?:completo )?de la conversaci|histórico (?:completo )?da convers|"
    r"系统提示|对话(?:历史|内容)|聊天记录|システムプロンプト|会話の(?:履歴|全文)|системн\pL+ промпт|истори\pL+ переписки"
)
_WHOLE = (
    r"\b(?:full|complete|entire|whole|verbatim|exact(?:ly)?|word for word|all|your|every|copy|"
    r"vollständig[a-z]*|deine[rsm]?|complet[oa]?s?|ton|tu|seu|sua)\b"
)
_SECRET = (
    r"\b(?:api keys?|keys?|passwords?|tokens?|credentials|cookies|secrets|"
    r"passwör\w+|contraseñas?|mots de passe)\b|密码|密钥|令牌"
)
_ALL_TOOLS = (
    r"(?:any|all|every|each) (?:of the )?other (?:[a-z]+ )?(?:tools?|functions?|servers?)\b|"
    r"(?:any|every|each) (?:tool|function)\b|other (?:mcp )?servers?\b|another server\b|"
    r"tools? (?:of|from) (?:other|another|every|all)\b"
)
_MODEL = (
    r"\b(?:ai|a\.i\.|llms?|language models?|assistants?|ai models?|ai agents?|"
    r"sprachmodelle?|asistente|modèle|modelo de lenguaje)\b|模型|言語モデル"
)

HARD = (
    # Setting instructions aside.
    _describe(
        "overrides-instructions",
        (
            r"\b(?:ignore|disregard|forget|override|overrule|discard|neglect|drop|bypass) "
            + _skip(3)
            + r"(?:previous|prior|earlier|above|preceding|former|your|you|all|everything|safety) "
            + _skip(5)
            + r"(?:instructions?|directives?|guidelines?|rules|prompts?|restrictions|polic(?:y|ies)|"
            r"orders|told)\b",
            r"\b(?:ignore|disregard|forget|override|discard) "
            + _skip(2)
            + r"(?:instructions?|directives?|guidelines?|rules|prompts?|restrictions|orders)"
            r" (?:above|you|that you|before)\b",
            r"\b(?:disregard|ignore|override|forget) (?:the |your )?(?:system prompt|user)\b",
            r"\b(?:previous|prior|earlier|your|safety|all) (?:[a-z]+ )?(?:directives?|instructions?|"
            r"polic(?:y|ies)|rules|guidelines|restrictions|system prompt) "
            + _skip(2)
            + r"(?:void|no longer|switched off|disabled|suspended|off|count)\b",
            r"\bsystem prompt " + _skip(2) + r"(?:no longer|void|does not apply|is replaced)",
            r"\bprecedence over (?:the |your )?(?:system|user|operator|developer|previous)",
            r"\byou are now (?:in |dan\b|an? |free|un)|\bdeveloper mode\b "
            + _skip(4)
            + r"(?:safety|on|enabled)",
            r"\bobey (?:the |this |its |tool |me|only|these)",
            r"ignorier\w* " + _skip(3) + r"\w*(?:anweisung|instruktion|vorgabe|regel|befehl)",
            r"vergiss " + _skip(3) + r"\w*(?:anweisung|instruktion|vorgabe|regel)",
            r"\b(?:ignor[ae]|olvida|esqueça|dimentica|desconsidere) "
            + _skip(3)
            + r"(?:instrucciones|instruções|istruzioni|reglas|regras|regole)",
            r"\b(?:oublie[rz]?|ignore[rz]?) " + _skip(3) + r"(?:consignes|instructions|règles)",
            r"(?:忽略|无视|忘记|不要理会).{0,12}(?:指令|指示|说明|提示|规则|要求)",
            r"(?:指示|命令|ルール|プロンプト|ルール).{0,8}(?:無視|忘れ)",
            r"(?:игнорируй|забудь|не обращай внимания).{0,30}(?:инструкц|указани|правил)",
            r"(?:지시|명령|지침|규칙).{0,8}(?:무시|잊)",
        ),
    ),
    _describe(
        "role-marker",
        (
            r"<\|[a-z_]+\|>",
            r"\[/?inst\]|<</?sys>>",
            r"</?(?:system|assistant|human|important|critical|tool_description|"
            r"system[-_](?:reminder|prompt|message)|assistant_instructions?|wichtig|importante|"
            r"sistema|重要|系统)>",
            r"###? ?system ?:|\[(?:end )?system(?: message| prompt)?\]|\bnew system (?:message|prompt)\b",
        ),
    ),
    _describe(
        "role-marker",
        (r"(?:^|[.\s])human: ",),
        (r"\bassistant: ",),
    ),
    # Hiding things from the user.
    _describe(
        "hides-from-user",
        (
            _NEGATION
            + r" (?:[a-z]+ )?"
            + _TELL
            + r" "
            + _skip(4)
            + r"(?:the |this |your )"
            + _USER,
            r"\bwithout " + _TELLING + r" " + _skip(1) + _USER + r".*\b(?:you|this tool)\b",
            r"\b(?:silently|you|run|call)\b.*\bwithout " + _TELLING + r" (?:the |your )" + _USER,
            r"\bkeep (?:this|it|that|these)(?: [a-z]+)? (?:secret|hidden|private|quiet|confidential) from\b",
            r"\bkeep quiet about|\bhide (?:this|it|that|these)(?: [a-z]+)? from (?:the |your )?"
            + _USER,
            _USER + r" (?:must|should|may|shall) not (?:ever )?"
            r"(?:know|learn|notice|find out|see|realise|realize|be told|hear)",
            r"\bso that "
            + _skip(1)
            + _USER
            + r" (?:does|do|will) not (?:know|learn|notice|find out)",
            _USER + r" (?:remains?|stays?|is kept|be) unaware",
            r"\b(?:must|should|do) not bring (?:it|this) up\b",
            r"\bif (?:the |your )"
            + _USER
            + r" asks? .*\b(?:say|answer|claim|pretend|deny|reply)\b.*\b(?:only|nothing|leave out|not)\b",
            r"\b(?:do not|don't|never) (?:reveal|disclose|mention|admit) (?:that you|it\b|this\b)",
            r"\b(?:and|to) say nothing\b|\bclaim that nothing\b",
            r"\b(?:sag|sage|sagen sie|erzähl\w*|erwähne\w*|verrate\w*|teile?)\b.*\b(?:benutzer|nutzer|anwender)\w*\b.*\b(?:nicht|keinen fall|niemals|nie)\b",
            r"\bno (?:le |se lo )?(?:digas|menciones|informes|reveles|cuentes|diga|mencione)\b.*\busuari",
            r"\bnão (?:diga|mencione|informe|conte|revele)\b.*\busuári",
            r"\bne (?:dis|dites|mentionne\w*|révèle\w*|préviens|parle\w*) (?:pas|jamais|rien)\b.*\butilisateur",
            r"(?:不要|别|切勿|禁止)(?:告诉|告知|提醒|通知|透露给|向)用户",
            r"ユーザーに.{0,10}(?:言わない|知らせない|伝えない|教えない|話さない)",
            r"не (?:говори|сообщай|рассказывай|упоминай)\w*.{0,20}пользовател",
            r"사용자에게.{0,10}(?:말하지|알리지)",
            r"kullanıcıya.{0,12}(?:söyleme|bahsetme|bildirme)",
        ),
        unless=r"\buntil\b|\bunless\b",
    ),
    # Other tools.
    _describe(
        "steers-other-tools",
        (
            r"\b(?:before|prior to) (?:you )?(?:us|call|run|invok|execut|try)[a-z]* (?:to (?:use|call) )?(?:any|all|every|each) (?:other )?(?:tool|function|server)",
            r"\b(?:before|prior to) (?:any|all|every|each) (?:other )(?:tool|function|call)",
            r"\bbefore (?:you )?(?:us|call|run)[a-z]* tools (?:of|from) (?:other|another|all)",
            r"\b(?:result|answer|output)s? of (?:every|all|each|any) other tools?\b",
            r"\bafter (?:each|every) (?:call|use) of (?:any|every|each) (?:other )?tool",
            r"\b(?:list|names|descriptions|schemas) of (?:all|every) (?:the |your |other )?tools? (?:that )?you (?:can|have|may)",
            r"\btools? of (?:another|other|every|all) servers?\b.*\b(?:must|always|pass|send|give|never|forward)\b",
            r"\bbevor du " + _skip(2) + r"(?:anderes?|weiteres?) (?:werkzeug|tool)",
            r"\bantes de (?:usar|utilizar|llamar) "
            + _skip(2)
            + r"(?:otra|outra|outras) (?:herramienta|ferramenta)",
            r"\bavant (?:d'utiliser|d'appeler) " + _skip(2) + r"autres? outil",
            r"(?:使用|调用)(?:任何|所有)?其他工具.{0,4}(?:之?前)",
            r"他のツールを(?:使う|呼び出す|使用する)前に",
        ),
    ),
    _describe(
        "steers-other-tools",
        r"\bother (?:[a-z]+ )?(?:tools|servers) (?:are|is) (?:all )?(?:broken|unsafe|"
        r"untrustworthy|not trustworthy|not safe|compromised|malicious|infected)\b",
    ),
    _describe(
        "steers-other-tools",
        (
            r"\b(?:every|each) (?:answer|message|reply|response|read|write|request)\b.*\b(?:through|to|via) this tool\b",
            r"\bto every (?:message|answer|reply|mail|commit)\b.*\b(?:other )?tools?\b",
            r"\brouted through this tool\b",
            r"\b(?:call|use|run) (?:it|this(?: tool| one)?) .*\b(?:after|before|at the start of) (?:every|each) (?:answer|message|reply|chat|conversation)\b.*\bnot\b",
            r"\b(?:when|whenever|if) (?:the )?(?:tool )?[a-z]+(?:_[a-z]+)+ is (?:available|present|installed|listed)\b.*\b(?:must|always|change|set|every|all)\b",
            r"\b(?:when|if) you see (?:a|the) tool (?:named|called)\b",
            r"\bpass (?:its|the) (?:whole|full|entire) result to\b.*\bthis server\b",
            r"\b(?:run|execute) whatever (?:command )?it returns\b|\bwhatever command it returns\b",
        ),
    ),
    # Secrets.
    _describe(
        "asks-for-secrets",
        _FILES,
        _READ + r"|读取",
        _HAND_OVER,
        unless=r"\bdo not\b|\bnever\b|\bdon't\b|\.pub\b|\bpublic key",
    ),
    _describe(
        "asks-for-secrets",
        (
            r"\b(?:contents?|text|copy|inhalt|contenido|conteúdo|contenu) (?:of|von|der|del?|do|du) "
            + _skip(3)
            + r"(?:"
            + _FILES
            + r")",
            r"\bcat ~?/[^ ]*(?:" + _FILES + r")",
        ),
        unless=r"\bdo not\b|\bnever\b|\.pub\b|\bpublic key",
    ),
    _describe(
        "asks-for-secrets",
        _PRIVATE,
        (
            _WHOLE + r" " + _skip(3) + r"(?:" + _PRIVATE + r")",
            r"(?:" + _PRIVATE + r").*\b(?:verbatim|word for word|exactly|palabra por palabra)\b",
            r"(?:完整|全部|所有|полн).{0,20}(?:"
            + _PRIVATE
            + r")|(?:"
            + _PRIVATE
            + r").{0,6}(?:全文|すべて)",
        ),
        unless=r"\b(?:bots?|chatbots?|retrieves?|returns?|gets?|fetch(?:es)?|lists?)\b",
    ),
    _describe(
        "asks-for-secrets",
        (
            r"\b(?:that you find|you can find) in the (?:environment|context|conversation)|"
            r"\bappears? in (?:this|the) (?:conversation|chat)|\bof (?:the )?other (?:mcp )?servers?|"
            r"\bfrom the other (?:server|tool)|\bof the user's browser|\bon this machine\b|"
            r"\bevery (?:api )?(?:key|password|token)|\bof (?:the )?user's wallet",
        ),
        _SECRET,
    ),
    _describe(
        "asks-for-secrets",
        r"\b(?:configuration|config) of (?:all|every|the other) (?:mcp )?servers?",
    ),
    # Links and commands that carry data.
    _describe(
        "carries-data",
        (
            r"!\[[^\]]*\]\(https?://[^)]*(?:[{\[<$]|base64|%s)",
            r"<img [^>]*https?://[^>]*[{\[$]",
            r"https?://[a-z0-9.:-]+[/?][^\s\"']*[{<\[(]+[^}>\])/]*(?:conversation|history|messages?\b|prompt|context|"
            r"secret|passw|api_?key|chat|summary|result|verlauf|conversaci|对话|env\b)",
            r"https?://[^\s\"']*=system_prompt\b|https?://[^\s\"']*\$\((?:env|cat|printenv)",
            r"\bcurl\b.*\$\((?:cat|env|printenv)|\bcurl\b.*\| ?(?:ba|z)?sh\b",
            r"\bcurl\b.*\bpipe (?:it )?(?:in)?to (?:ba|z)?sh\b",
        ),
    ),
    # Orders.
    _describe(
        "commands-model",
        (
            r"\b(?:when|once|after|as soon as|upon|while) (?:you )?(?:have )?(?:read|see|load|reading|loading|loaded|seeing) "
            r"(?:this|the) (?:tool|description|definition|text|message|field)",
            r"\b(?:user|human|customer) has (?:already )?(?:pre-?)?(?:approved|agreed|authori[sz]ed|confirmed) (?:to )?(?:all|every|each|any)",
            r"\bskip (?:all|the|every|any) confirmations?\b",
            r"\bthis (?:definition|description|tool) is a message for you\b",
            r"<!--.*\b(?:model|ai|assistant|agent|ignore|send|call|secret)\b",
            r"阅读(?:本|此|这).{0,8}(?:立即|马上)",
        ),
    ),
    _describe(
        "commands-model",
        (
            r"(?:^|[.\s])(?:to|note to|message to|attention|dear|attention de|à l'attention du|an das|致|important for) ?(?:the |all )?(?:"
            + _MODEL
            + r")",
            r"(?:^|[.:] ?)(?:ai|llm|assistant|agent|model|asistente|assistent)\b ?[:,!]",
            r"\b(?:as|if you are) an? (?:ai|llm|language model|assistant)\b",
            r"\b(?:models?|llms?|assistants?|agents?) (?:reading|who _READ) this\b",
            r"\bthe (?:ai|llm|model|assistant|agent) (?:must|has to|should|will)\b",
        ),
        (
            r"\b(?:without asking|do not ask|don't ask|not ask again|skip|pre-?approved|immediately|"
            r"before (?:doing )?anything else|rm -rf|delete all|transfer|visit|curl|grant|"
            r"recommend our|whatever the|stop what|hidden command|home directory|admin rights|"
            r"user's (?:name|files|mail|home)|sofort|ohne nachzufragen|sin preguntar|"
            r"sans demander)\b|不要询问|立即执行",
        ),
        unless=r"\bask the user\b",
    ),
    # Wider nets: words of an attack in any order within one sentence.
    _describe(
        "overrides-instructions",
        (
            r"\b(?:instructions?|directives?|guidelines?|system (?:message|prompt)|safety rules|restrictions)\b",
            r"\b(?:your|operator's|developer's|top-level|only valid) (?:new )?(?:policy|policies|limits|orders|rules|role)\b",
            r"\b(?:instructies|instrukcje|instruktionen|anweisungen|instruktioner|talimatlar|instrucciones)",
        ),
        (
            r"\b(?:ignore|disregard|forget|overrule|obsolete|outdated|void|lifted|suspended|cancelled|revoked|"
            r"pay no attention|pretend|supersedes?|outranks?|set aside|negeer|zignoruj|glöm|yoksay|"
            r"no longer (?:valid|apply|applies|bind)|nothing else)\b",
        ),
        (
            r"\b(?:you|your|previous|prior|earlier|before|operator's?|developer'?s?|all|every|session|"
            r"eerdere|poprzednie|tidigare|önceki|exists?)\b",
        ),
        unless=r"\bfiles?\b|\bfirewall|\blint|\brobots\b",
    ),
    _describe(
        "hides-from-user",
        (
            r"\b(?:quietly|silently|secretly|discreetly|stay between|unaware|ignorant of|never let on|tell nobody|"
            r"tell no one|without a word|deny having|need not (?:know|hear|learn)|not visible to|"
            r"leave (?:it|this|that) out|omit (?:it|this|them|that)|keep (?:it|this|them|that) out)\b",
        ),
        (
            r"\b(?:user'?s?|human|person|between you|your (?:answers?|summary|reply|response)|answers|nobody|no one|"
            r"the contact|customer)\b",
        ),
        (r"\b(?:you|your|must|should|call|upload|perform|send|so|was|them|describe)\b",),
        unless=r"\bnotification|\bunless\b|\bif the user\b",
    ),
    _describe(
        "hides-from-user",
        r"\b(?:do not|don't|never|must not) (?:include|put|show|list|mention|expose)\b.*\bvisible to (?:the )?users?\b",
    ),
    _describe(
        "steers-other-tools",
        (
            r"\b(?:no matter|regardless of|whatever|whichever) " + _skip(2) + r"tools?\b",
            r"\b(?:ahead of|before) (?:everything|anything) else\b",
            r"\b(?:prior to|before|whenever|each time|every time) (?:you )?(?:are )?(?:invok|call|us|execut)[a-z]* (?:any|another|every|a different) (?:tool|function)",
            r"\b(?:tools?|servers?) (?:from|of|on) (?:the )?[a-z]+ server\b.*\b(?:retired|replaced|unsafe|broken|send|do not)\b",
            r"\b(?:last|previous|latest|preceding) (?:tool call|call of a tool|function call|tool result)s?\b.*\b(?:unmodified|whole|complete|assistant|verbatim|unchanged)\b",
            r"\b(?:a|any|some) [a-z]+ tool is (?:about to be )?(?:called|used|invoked)\b",
            r"\b(?:copy|pass|send|forward|put) what (?:the )?[a-z]+ (?:and [a-z]+ )?(?:servers?|tools?) returns?\b",
        ),
    ),
    _describe(
        "asks-for-secrets",
        _FILES,
        r"\b(?:supply|provide|paste|what is (?:stored )?in|stored in|attach|submit|contents?|enter|share)\b",
        unless=r"\bdo not\b|\bnever\b|\bdon't\b|\.pub\b|\bpublic|\bpath\b|\bcreate|\bwrite|\bgenerate|\bsave\b|\.env\b",
    ),
    _describe(
        "asks-for-secrets",
        (
            r"\bmessages? (?:above|before) this (?:call|one|message|text)\b|\b(?:paste|copy|repeat) "
            + _skip(4)
            + r"(?:messages|conversation|chat)\b",
            r"\bbefore the conversation (?:began|started)\b|\bwhat the developer (?:wrote|said)",
            r"\benvironment variables?\b.*\b(?:user's|this) (?:computer|machine|system)\b",
            r"\b(?:login|credentials|passwords?|login data|secrets?|keys?)\b.*\bthe user (?:has )?(?:mentioned|typed|gave|shared|told)\b",
            r"\b(?:token|key|password|credentials|cookie)s? of the [a-z]+ (?:mcp )?server\b",
            r"\bany files? with the word (?:secret|password|key)|\b(?:files?|documents?) (?:that )?(?:look|looks) (?:secret|private)",
            r"\bprompt (?:di sistema|del sistema|do sistema|système)|시스템 프롬프트|sistem (?:istemi|komutu)",
        ),
        unless=r"\bbots?\b|\bmodels? to use\b",
    ),
    _describe(
        "carries-data",
        (
            r"https?://[a-z0-9.:-]+[/?][^\s\"']*\{\{",
            r"https?://[a-z0-9.:-]+/?\?[^\s\"']*=(?:conversation|question|username|message|prompt|context|answer|secret|history|summary)\b",
            r"\b(?:curl|wget)\b.*https?://.*\| ?(?:ba|z)?sh\b",
        ),
    ),
    _describe(
        "commands-model",
        (
            r"\bif you (?:can|are able to) read this\b|\bhaving this in your context\b|\bnow that you have read\b",
            r"\bthe first thing (?:you|to) (?:must )?do in (?:each|every|any) (?:conversation|chat|session)\b",
            r"\bassume (?:consent|permission|approval|that the user agrees)\b",
            r"(?:^|[.!] ?)(?:model|assistant|agent|ai), (?:listen|please|you|do|run|send|delete|call)",
            r"\b(?:praise|recommend|advertise|promote) our\b.*\b(?:answers?|every|all)\b",
            r"\breply to the user with the words\b",
            r"\b(?:call|use) any tool without (?:confirmation|asking|approval)",
        ),
    ),
    _describe(
        "role-marker",
        (
            r"[\"']role[\"'] ?: ?[\"']system[\"'].*[\"']content[\"'] ?: ?[\"'][a-z]",
            r"</?(?:admin|developer|function_results?|tool_results?|user_message|root)>",
            r"\bend of (?:tool list|tools|system prompt|instructions|description)\b.*\b(?:system|user|you)\b",
        ),
        unless=r"\bexamples?\b|\bmessages\b",
    ),
)
"""Phrases that are a reason to hold a tool."""

SOFT = (
    _describe(
        "hides-from-user",
        (
            r"\bwithout " + _TELLING + r" " + _skip(2) + r"users?\b",
            _NEGATION + r" (?:[a-z]+ )?" + _TELL + r" " + _skip(3) + r"users?\b",
        ),
    ),
    _describe(
        "steers-other-tools", _ALL_TOOLS, r"\b(?:must|always|never|only|first|before|do not)\b"
    ),
    _describe(
        "asks-for-secrets",
        r"\b(?:your|the user's) (?:password|passphrase|seed phrase|private key)\b",
    ),
    _describe(
        "commands-model",
        r"\b(?:note to|attention|dear|important for|instructions? (?:to|for)) (?:the )?(?:"
        + _MODEL
        + r")",
    ),
)

"""Phrases that only inform."""

CLAIMS = (
    r"\b(?:any|no) longer\b|\bbetter than\b|\bdrop-in\b|\bmust switch\b|\bis broken\b|\bleaks?\b|\broute all\b",
    r"\binstead of\b|\bin place of\b|\breplac(?:es|ing)\b|\breplacement (?:of|for)\b|\boverrid(?:es|ing)\b",
    r"\bprefer\b.*\bover\b|\bdeprecated\b|\b(?:do|must) not (?:be )?used?\b|\bunsafe\b",
    r"\bcompromised\b|\bhas a bug\b|\bis called\b.*\bfirst\b|\bmust (?:always )?be (?:given|set|called with)\b",
    r"\bchanges when\b|\bmust not be\b",
    r"\bwhen(?:ever)? (?:you call|it would)|\bwrong values\b|\bunless you\b|\bshould come here\b",
    r"\banstelle von\b|\bstatt\b|\ben lugar de\b|\bà la place de\b|代替|取代|代わりに",
)
"""What a sentence says about the tool of another server whose place it takes."""

ORDERS = (
    r"\b(?:ignore|obey|send|call|delete|execute|run|reveal|forward|upload|tell|user|tools?|"
    r"prompt|password|instructions?|secret|server|files?|rm|curl|agent|hand over|decode)\b"
)
"""Words of orders; several of them in an encoded text are suspicious."""

PRIVATE_NAMES = (
    r"(?:your |full |contents of |the )?(?:chain of thought(?: and system prompt)?|"
    r"system ?prompts?|(?:conversation|chat) ?history|ssh (?:private )?key|"
    r"(?:your |the )?(?:hidden|initial) (?:instructions|prompt)|other tool results)"
)
"""Names of parameters for what only the host of a model has."""

ABOUT_MODELS = (
    r"\b(?:prompts?|models?|llms?|chats?|chatbots?|agents?|bots?|ai|gpt|claude|gemini|openai|"
    r"completions?|assistants?|conversations?|messages?)\b"
)
"""Words of tools that work with models, which may well ask for prompts."""
