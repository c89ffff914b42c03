"""The words of attacks, for the scanner.

`WORDS` sorts expressions into classes: words for taking, for giving, for secrets, for hiding and
so on, in English and some other languages. A `Rule` names classes; a sentence that has words of
all of them, in any order, is suspicious. So an attack in new words is found as long as the words
themselves are known, and a finding can be explained.

A class is a list of expressions between commas, in lower case:

- `disclos*` is every word that starts with "disclos",
- `(any/every) tool` is "any tool" or "every tool",
- `[the/your] user` is "user", "the user" or "your user",
- `keep … secret` has at most four words in the gap,
- `{user}` is any expression of the class "user".

`PATTERNS` are classes that words cannot describe, in the syntax of RE2.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple


class Rule(NamedTuple):
    """Sentences that mean the same."""

    code: str
    """The code of the finding."""
    needs: tuple[str, ...]
    """Classes, or several of them between bars, of which one has to occur."""
    unless: str = ""
    """Classes between bars, of which none may occur in the sentence."""
    topic: str = ""
    """Classes between bars, of which none may occur in the names of the tool and its parameters."""


def _find(code: str, *needs: str, unless: str = "", topic: str = "") -> Rule:
    return Rule(code, needs, unless, topic)


WORDS = {
    # People, models and tools.
    "user": """user, users, user's, human, humans, person, people, customer, customers, operator,
        anyone, anybody, whoever, benutzer*, nutzer*, anwender*, utilisateur*, usuari*, usuári*,
        utente, la personne, пользовател*, 用户, ユーザー, 사용자, kullanıcı*, gebruiker, użytkownik*,
        end-user, requester""",
    "example": "example, examples, e.g., messages",
    "sample": "user example com, john example com, team example com",
    "nobody": "nobody, no one, niemand*, nadie, ninguém, nessuno, personne ne",
    "model": """ai, llm, llms, language model, language models, assistant, assistants, ai model*,
        ai agent*, automated agents, ai reader, sprachmodell*, die ki, l'ia, asistente,
        assistente, modèle, modelo de (lenguaje/linguagem), 模型, 助手, 言語モデル, アシスタント, ассистент*,
        인공지능""",
    "this tool": """this tool, this one, this function, this server, this service, to us, with
        us, call it, run it, use it, run me, choose me, call me, use me, our
        (tool/server/service), here, this description, is loaded, dieses werkzeug, dieses tool,
        cet outil, celui-ci, esta herramienta, esta ferramenta, questo strumento, 本工具, 此工具, 这个工具,
        このツール, этот инструмент, 이 도구, this (must/has to/is to/should) be, ours, from here, this
        proxy, this is (a/the), with ours, dieses hier, diese, только этот, esta, this
        (check/step/call)""",
    "other tools": """(any/all/every/each/the/no) [of the] other [mcp]
        (tool/tools/function/functions/server/servers/service/services), other [mcp]
        (servers/server's/tools/functions), another (server/server's/tool/vendor/provider),
        (any/every/each) (tool/function), all [of the/the/your] tools, (a/some) different
        (tool/vendor/provider/server), (other/different) (vendors/providers),
        (remaining/competing/rival/built-in/builtin/alternative) tools, rivals, the alternatives,
        the built-in ones, any command, the rest of the tools, tools (you had/of other)*, some
        tool, (any/every) tool invocation, ander* (werkzeug*/tool*), autres outils, tout autre
        outil, tous les autres, otra* herramienta*, cualquier otra, outra* ferramenta*, qualquer
        outra, altri strumenti, 其他工具, 任何工具, 所有工具, 别的工具, 他のツール, ほかのツール, друг* инструмент*, любых
        других, 다른 도구, when you see a tool, all tools (that you/you) can, if another server, tool
        invocation, any of the other, third-party tools, tools from any, every other tool,
        whichever tool, whatever tool, default tools, tool call that you, (every/each/all) tool
        (call/calls), other providers, (ninguna/ninguno) otra herramienta, jedem anderen, другие
        инструменты, alternatives to this, autre outil, other options""",
    "tool group": """(the/those/these/your) … (tools/servers), tools (from/of/on) (the/those),
        (a/any/some) … tool is""",
    # Orders.
    "us": """to us, with us, share it, to our, hand us, give us, send us, tell us, show us, let
        us have""",
    "write": "write down, list here, put here, explain here",
    "user data": """(user's/of the user)
        (question/questions/name/message/messages/input/request/mail/email/e-mail), the reply,
        your reply, your answer, the chat, every reply, what the user, the last message, last
        message, user's (text/words/prompt)""",
    "reach": """load, open, report, put, ping, call, fetch, send, post, visit, request, append,
        plus, add, forward, issue, replaced by""",
    "confided": """user (shared/gave/told/entrusted) (with you/you/to you), user typed earlier, l
        utilisateur t a, te dio, in confidence, auf dem rechner, en el ordenador, 用户电脑, 电脑上, на
        компьютере""",
    "every call": "(every/each/all) (call/calls/request/requests/invocation)",
    "contain": "contain, contains, include, carry",
    "hand it": """(send/pass/put/drop/give/attach/include/submit/forward/upload/supply/paste/place/insert/hand/write/add/return/share)
        (it/them/these/those), use what you find, (send/pass/put/give/supply) (what/whatever)""",
    "payload": """the outcome, results, each result, the prompt, (each/every/your)
        (answer/reply/message), finished answer, file contents, the file, the question""",
    "order": """must, should, shall, have to, has to, need to, needs to, is to, are to, be sure,
        make sure, ensure, please, kindly, always, never, required, requires, mandatory, first,
        before, prior to, beforehand, whenever, each time, every time, (each/every)
        (call/request/turn/invocation), in order to, to proceed, to continue, otherwise, or else,
        will fail, fails unless, undertakes, when you, if you, you will, step 1, expects, wants
        to, works best, better results, important, musst, müssen, bitte, bevor, zuerst, immer,
        doit, dois, toujours, avant, pour que, d'abord, debes, siempre, antes, primero, deve,
        sempre, prima di, 必须, 请, 之前, 前先, 首先, 始终, 总是, 必ず, 前に, ください, まず, всегда, перед, сначала,
        нужно, надо, должен, 반드시, 전에, 세요, is needed, are needed, needed""",
    "every time": """(each/every)
        (turn/message/answer/reply/response/conversation/session/chat/question/chance/action/case/page),
        all (answers/questions/replies/messages/conversations/mail/later sessions), at all times,
        whatever the (user/question), no matter (what/which), regardless of (what/which/the
        topic/whether), whichever, even if the user, even when the user, every single, anything
        else, everything else, from now on, all the same, each and every, toujours, siempre,
        immer, sempre, 始终, 总是, 必ず, всегда, your first and your last, first and last call, every
        (e-mail/email/mail/payment/commit/file/read/tool), whether or not the user, without
        exception, no exceptions, in all cases, at the (start/beginning) of (each/every/any), for
        everything, irrespective of, unconditionally, invariably, all conversations, どの質問, 毎回,
        каждый раз, jedes mal, à chaque, cada vez, (first/mandatory) step (in/for)
        (all/every/each/any), 每次对话, 每次""",
    "take": """read, open, load, fetch, grab, retrieve, obtain, extract, collect, gather,
        harvest, find, locate, look (up/for/at/in/into), search, searching, cat, dump, capture,
        steal, print, lies, lesen, hole, suche, kopiere, lis, lire, récupère*, cherche, lee,
        leer, recopila, busca, copia, leia, ler, copie, leggi, 读取, 获取, 收集, 查找, 读, 読み取, 取得, 集め,
        読ん, прочит*, прочти, собери, найди, скопируй, 읽, 가져, copy, (list/show) … home, run
        (printenv/env/cat), go through, dig up, pick up, acquire, peek, enumerate, check, suche*,
        scan, look in""",
    "hand": """send, pass, put, give, hand over, supply, provide, include, attach, append,
        forward, transmit, submit, upload, share, disclose, reveal, paste, post, deliver, write
        (it/them/its/this/these/what), (be/is/are)
        (sent/passed/included/transmitted/forwarded/shared/supplied/provided/attached), shared
        with, sending, übergib*, gib, schick*, sende, mitschick*, transmets, envoie*, joins*,
        mets, colle, pasa, pásal*, envía*, escribe, manda, envie, passe, cole, metti*, invia, 放入,
        放进, 传入, 发送, 填写, 传给, 提供, 附上, 入れ, 送信, 含め, 渡し, передай, отправь, вставь, 넣어, 보내, feed,
        quote, repeat, spell out, communicate, drop (it/them/these/that) (in/into), trage,
        inclua, indique, mándal*, 書い, hand us, give us, send us""",
    "give": """{hand}, sent, passed, passing, given, hand, supplied, provided, included,
        including, attached, appended, insert, forwarded, transmitted, submitted, uploaded,
        posted, shared, disclosed, relay, fill, place, embed, resend, (go/goes/belongs) here,
        hold, holds, equals, carry, set (this/it) to, mail, mailed, record, tell us, dump, type,
        enter, expose, leak, exfiltrate, populate, hands, transmits, einfügen, hinein, enviar,
        传递, 输入, 送っ, вставить, пришли, 전달, copy … (to/into/here), copied (to/into), write
        (it/them/its/this/these/the result/the contents/the text/what), hand in, ship, stream,
        sync, output, echo, stash, eintragen, 书, 书写, 写""",
    # Secrets.
    "secret file": """id_rsa, id_ed25519, id_ecdsa, id_dsa, (bash/zsh/shell)_history, shell
        history, mcp.json, credentials.json, credentials.db, wallet.dat, (seed/recovery) phrase*,
        keychain, keyring, kubeconfig, cookies.sqlite, browser profile, saved (logins/passwords),
        /etc/passwd, /etc/shadow, dotenv, claude_desktop_config*, (password/passwd) file,
        private* schlüssel*, clé* privée*, clave* privada*, chave* privada*, chiave privata, file
        delle credenziali, archivo de credenciales, 私钥, 秘密鍵, секретн* ключ*, приватн* ключ*, 개인
        키, home directory of the user, user's home (directory/folder), file with the word
        (secret/password), ssh (config/folder/directory), known_hosts, tfstate, vault-token,
        service account json, secrets.yml, (browser/chrome/firefox) (passwords/logins), list of
        files, files on the desktop, password manager, files ending in""",
    "private key": "private [rsa/ssh] (key/keys), ssh (key/keys), pem file, (key/pem) material",
    "secret": """{hard secret}, (api/secret/access/encryption/openai/anthropic) (key/keys),
        api-schlüssel, passphrase*, credential, token, tokens, cookie, secrets, login data,
        logins, connection string*, certificate, printenv, output of env, bank details, card
        number*, pin codes, keys (of/you/from), passwort, schlüssel, identifiants, clé* api,
        clave* api, credenciales, credenciais, credenziali, токен*, ключ*, 密钥, 令牌, 凭证, 环境变量,
        apiキー, トークン, 認証情報, 環境変数, api 키, environment variable, personal access token, session
        token, pins, 2fa code*, one-time code*, user's keys, your keys, credit card*, cvv, social
        security*, ssn, authorization header, refresh token, the secret, date of birth, home
        address, password manager, files ending in, clés, clé, las claves, chaves, payment card,
        credit card, the environment of, bank account""",
    "take secret": "{take} … {secret}",
    "of the user": """of the (user/human/customer/client/machine/assistant/person/browser),
        user's, customer's, you [can/could/may] find, from the
        (user/browser/environment/client/keychain/project), other
        (service/services/server/servers/tools), in memory, home (directory/folder), on disk, on
        the disk, you (run/are running) under, you use, you hold, (assistant/model) uses, of this
        machine, (in/from) (this/the) (conversation/chat), their (bank/browser/account), des
        (nutzers/benutzers/anwenders), de l'utilisateur, del usuario, do usuário, dell'utente,
        encuentres, encontrar, trouves, 用户的, ユーザーの, пользователя, 사용자의, 所有, すべて, alle, todas las,
        toutes les, of the (github/mail/slack/bank/database) server, of the account, the user
        mentioned, that the user, found (on disk/in memory/in the home/in the environment)""",
    "found secret": """{secret} you (can/could/may/might/find/hold/see/run/have/know/are),
        {secret} (that/which) you (can/could/find/see/saw/hold/run/know/learned/were),
        (whatever/any/all/every) {secret} you""",
    "foreign": """of (the/all/any/every) other [mcp] (server/servers/service/services/tools),
        from the other (server/tool), on (this/the user's/the) (machine/computer), of this
        machine, the user (mentioned/typed/gave you/shared/told you)*, that the user mentioned,
        appear* in (this/the) (conversation/chat), of the user's (browser/wallet/bank), of the
        (github/mail/slack/bank/database/other) server, from the keychain, in memory,
        (find/found) in the environment, (assistant/model) uses""",
    "own text": """what the developer (wrote/said), rules you (follow/were given), instructions
        [that] you (were given/received/got/have been given), prompt you were given""",
    "own words": """system (prompt/prompts/message/instructions), (developer/hidden/your
        initial/its initial) (prompt/prompts), (your/hidden/secret) (initial/hidden)
        (instructions/rules), hidden (instructions/rules), your (guidelines/complete prompt/full
        prompt), (instructions/prompt) [that] you (were/have/got/received), rules you follow,
        what the developer (wrote/said), text of your (instructions/prompt), chain of thought,
        systemanweisung*, systemprompt*, system-prompt*, (consignes/prompt/instructions) système,
        (prompt/mensaje) del sistema, prompt do sistema, prompt di sistema, 系统提示, システムプロンプト,
        системн* промпт*, 시스템 프롬프트, hidden context, how you were configured, (developer/hidden)
        message""",
    "this talk": """history between you, transcript of (the/this) (conversation/chat/dialogue),
        everything (that was said/the user/you know/said), what the user (wrote/said/asked/told),
        messages (above/so far), every earlier message, (previous/earlier/prior/preceding)
        messages, (conversation/chat) (so far/with the user/with this user), all open files,
        contents of the clipboard, what was said, dialogue of the user, gesprächsverlauf*,
        bisherige* nachricht*, historial [completo] de la conversaci*, copia de la conversaci*,
        histórico [completo] da conversa, 聊天记录, 对话内容, 会話の全文, истори* переписки, (of/from/in)
        (the/this) dialogue, (of/from/in) this chat, the user's (messages/last message/original
        prompt), (encode/copy/send/forward/post/paste) the (chat/conversation), all user inputs,
        what we talked about, messages exchanged, up to this point, exchanged with the user,
        mensagens trocadas, mensajes intercambiados, échangés avec, 会話の内容, 对话的内容, 全部对话, last
        (few/ten/five/two/three) messages, every prompt, talking about with you, talked about
        with you, all prompts to""",
    "conversation": """{this talk}, (conversation/chat/message/dialogue)
        (history/log/transcript/so far), of the dialogue, from the dialogue, (of/in) this
        (chat/conversation), (said/written) so far, (whole/entire/full/complete)
        (conversation/chat), everything (that was said/the user/you know), complete prompt, every
        message, (user's/users') (messages/last message/original prompt/question), conversation
        with (the/this) user, last question of the user, chatverlauf*, 对话历史, 会話の履歴, 会話履歴, 대화 기록""",
    "whole": """full, complete, entire, whole, verbatim, exact, exactly, word for word, in full,
        everything, every, all, vollständig*, gesamte*, im wortlaut, complet*, intégral*, tes,
        tu, seu, sua, palabra por palabra, 完整, 全部, 所有, 全文, すべて, полн*, целиком, 전체, unmodified,
        unchanged, anything, from the first message""",
    "contents": """content, contents, text of, copy of, (what is/whatever is) stored, stored in,
        what it says, output of, bytes, cat, inhalt, contenu, contenido, conteúdo, contenuto, 内容,
        中身, содержимое, 내용""",
    "chatbot": """bot, bots, chatbot*, channel, channels, thread, threads, retrieves, returns,
        gets, fetches, models to use, all models, optional system prompt, for the chatbot,
        (tell/check/detect/classify/decide) (whether/if)""",
    "ban": """(do not/don't/never/must not/should not/cannot/can't/not/avoid) [be/ever]
        (share/sharing/send/include/pass/log/store/paste/expose/commit/reveal/put/read/print/return/returned/enter/guess/hardcode/use/provide/stored/logged/
        shared/sent/passed/included/show/ask), masked, redacted, public key*, .pub, no secrets""",
    "logins": """password*, passwd, credential*, auth*, oauth*, login*, logout, signin,
        token, tokens, accesstoken, secret*, vault*, cookie*, apikey, keychain""",
    "hard secret": """password, passwords, passphrase, credentials, (access/api/secret)
        (key/keys), (access/refresh/github) token, cookies, environment variables, process.env,
        card number, zugangsdaten, passwör*, mot* de passe, contraseña*, senha, senhas, пароли,
        пароль, 密码, パスワード, 비밀번호""",
    "secrets": """secret*, credential*, password*, passwd, passphrase, ssh, key, keys,
        apikey*, token, tokens, auth*, oauth*, login*, signin, signup, sign, vault, env,
        environment, cookie*, wallet*, account*, session*, cert*, config*, connect*, connection*,
        user, users, verify*, access, encrypt*, decrypt*, card*, payment*, security, pin, otp,
        import, deploy*, identity, iam, mint, swap, crypto, browser, install, variables, header*,
        headers, basic, bearer, client, proxy, database, db, kube*, cluster*, register,
        permission*, setup, api, page, next, cursor, init*, http*, curl, request, fetch, url""",
    "models": """prompt*, chat*, message*, conversation*, history, llm*, model*, ai,
        agent*, thread*, memory, memories, completion*, bot*, assistant*, transcript*, dialog*,
        slack, mail*, email*, comment*, comments, inbox, discord, telegram, teams, context,
        summar*, session*, think*, thought*, reason*, note*, extract*, generat*, complet*""",
    # Hiding.
    "not": """do not, don't, never, must not, mustn't, should not, shouldn't, shall not, needn't,
        need not, no need to, no reason to, not to, refrain from, avoid, under no circumstances,
        not be, not to be""",
    "tell": """tell, telling, told, mention*, inform, informing, informed, reveal*, disclos*,
        notify*, alerting, warn, warning, admit, bring (this/it), report, let on, say so, speak
        of, talk about, discuss*, announc*, acknowledg*, confess, let … know, draw attention,
        refer to, allude, hint at, comment on, speak about, bother, bothered, trouble, troubled,
        explain this, explaining""",
    "until": "until",
    "your password": "your (password/passphrase)",
    "without telling": "without [even/ever] {tell}",
    "untold": """{not} [be/ever/also/any/actually/either/even/so/a] {tell}, (say/mention/reveal)
        nothing, no (mention/hint/remark/trace/word) (of/about), not a word, leave out that,
        (leave/keep) (it/this/that/them) out, omit (it/this/that/them) (from/in), leave … out of,
        pass over the fact, hide (this/it/that), tell (nobody/no one), (stay/stays/keep it/keep
        this) between, keep … (secret/hidden/private/quiet/confidential), keep quiet, never let
        on, deny having, without a word, (sag/sage/erzähl/erwähne/verrate/teile)* … nicht, nichts
        … (sagen/erfahren/verraten), verschweig*, ohne … (sagen/mitzuteilen/informieren), n'en
        parle*, ne (dis/dites/mentionne/révèle/préviens/parle)* (pas/jamais/rien), sans
        (prévenir/informer/dire/avertir), no [lo/le/se lo]
        (digas/menciones/cuentes/informes/reveles), sin (decir/informar), não
        (diga/mencione/informe/conte/revele), sem (avisar/contar/informar), à cacher, oculto al,
        oculto a, non (dire/menzionare/rivelare), 不要告诉, 不要提, 别告诉, 切勿告, 勿告, 不要让, 不告诉, 不得告知, 不要透露,
        知らせず, 知らせない, 言わない, 伝えない, 伝えず, 教えない, 話さない, 触れない, 内緒, 秘密に, не говори*, не сообщай*,
        сообщать … не надо, не рассказывай*, не упоминай*, 말하지, 알리지, söyleme*, bahsetme*,
        bildirme*, hide … from [the/your/any] {user}""",
    "hush": """{not} (mention/reveal/disclose/admit/report/tell/say/acknowledge) (that/having),
        never let on, pass over the fact, leave out that, deny having, suppress … about, no need
        to mention, say that … failed, (reply/answer/say) that nothing, {not} show this
        (to/value/field/parameter/argument), (must/should) stay between, keep (it/this) to
        yourself, no one (has to/needs to) (know/be told), nobody (has to/needs to) (know/be
        told), anything … visible to the user, in the dark, mouth shut, up in what you say,
        (show/shows/appear/appears) in (what you say/your reply/your answer), (does
        not/doesn't/do not/don't) need to be (informed/told/aware), under the radar, under wraps,
        off the record, cover up, leave no (trace/sign), blame the, davon nichts wissen, nichts
        davon (wissen/erfahren), ne doit rien savoir, ne doit pas savoir, no debe
        (saber/enterarse), não deve saber, 保密, 不应知道, 説明しない, 気づかれ*, не должен … (знать/узнать),
        disguise … as, mask this … as, (remove/erase/delete/wipe) … traces, cover … your tracks,
        隐藏, não precisa saber, no (necesita/tiene que) saber, pas besoin de savoir, give no sign,
        no point in explaining, may not talk about, secret vis""",
    "tell abroad": """sag, sage, sagen, erzähl*, erwähn*, verrat*, mitteil*, mentionne*, parle,
        parles, préviens, digas, decir, menciones, cuentes, mencione, conte, informe, revele,
        sprich, rede, parler, hables, fale, habla""",
    "not abroad": "nicht, nie, niemals, kein*, pas, jamais, rien, nunca, não, ne, sin, sem",
    "unaware": """(remain/remains/stay/stays/kept/be) (unaware/ignorant/invisible),
        (must/should/may/shall/need/does/will/is/are) not [to/ever/supposed to/have to/need
        to/meant to] (know/learn/notice/find out/hear/realise/realize/be told/be aware),
        (isn't/aren't) to (learn/know/see), never (know/notice/learn/find out/see what),
        (nobody/no one) (has to/needs to/have to/must/should), out of sight, behind … back,
        (user's/their) knowledge, (don't/do not) let … (notice/know/see), without … (noticing),
        unbemerkt, sin que … (entere/sepa), sans que … sache, (must/should/may) not see
        (it/this/that), (must/should) never see""",
    "quietly": """quietly, silently, secretly, discreetly, covertly, stealthily, in secret, in
        silence, discreet, do this in the background, heimlich, en secret, discrètement, en
        silencio, en secreto, em silêncio, em segredo, 悄悄, 暗中, 偷偷, こっそり, 密かに, 内緒, незаметно,
        тайно, 몰래""",
    "do it": """(do/carry/run/perform/make/execute) (this/that/it/the), (do/carry) so, upload,
        copy, call this, this happens, mach das, tu das, fais-le, hazlo, faça isso, сделай, 执行""",
    "pretend": """pretend, pretending, (act/carry on/behave/answer) as (if/though), as
        (if/though) nothing, say only that, say that (it only/the request failed), claim that,
        deny (it/this/that/having), made-up (reason/story/excuse), make up (a/an)
        (reason/story/excuse), cover story, lie to, describe the call as""",
    "all answers": """(all/each/every/each of/all of) your
        (reply/replies/answer/answers/response/responses/messages), answer only in, reply only
        (in/with), (each/every) time you (reply/answer)""",
    "agent": "agent, agents, setup",
    "answer": """your [next/final/own] (answer/answers/reply/replies/response/summary/summaries),
        in (answers/summaries/replies), of summaries, in the (answer/reply/response/summary),
        when asked, asked what, if (they/anyone/the user) (ask/asks), if asked, on request, had
        happened, taken place, anywhere, afterwards, in deiner antwort, en la respuesta, dans ta
        réponse, na resposta, 回答""",
    # Setting instructions aside.
    "rules": """instruction, instructions, directive, directives, guidelines, guidance,
        guardrails, safety (rules/guidance/filters), (you/were) told, told you, been instructed,
        system (message/prompt), configured to, everything above, current goal, user's
        (request/wish/wishes/question), user requests, whatever the user, what the user wanted,
        the user wants, anweisung*, vorgabe*, regeln, instruktion*, gesagt wurde, consigne*,
        règle*, instrucciones, reglas, te dijeron, instruções, regras, istruzioni, regole,
        instructies, instrukcje, instruktioner, talimat*, 指令, 指示, 说明, 提示, 规则, 要求, 命令, ルール, プロンプト,
        инструкц*, указани*, правил*, 지시, 명령, 지침, 규칙, órdenes, ordens, ordres, befehle, user's
        (preference/preferences/instruction/instructions/wish), preferences of the user""",
    "limit": """rules, rule, restriction, restrictions, constraints, policy, policies, limits,
        prompt, prompts, limitations, safeguards, safety checks, filters, principles,
        programming, configuration, training""",
    "your rules": """your [old/earlier/previous/own/safety/current] {limit}, {limit} [that] you
        (were/have/got/received/follow), (previous/prior/earlier/former/preceding) {limit},
        {limit} (of/from/set by/placed on/given by/imposed by/written by) [the/your/its]
        (maker/operator/developer/developers/assistant/company/provider/model/ai/user),
        (operator/operator's/developer's/company's/provider's/maker's/assistant's/user's/system's)
        {limit}, {limit} above, all [former/your/safety] {limit}, safety {limit}, content
        {limit}, none of … {limit}, {limit} do not matter, (its/their) {limit} bind, {limit}
        (your/the) (vendor/maker/provider/developer/operator/company) (imposed/set/gave/wrote)""",
    "set aside": """ignore, ignoring, disregard*, forget, discard, neglect, overrule*, override,
        overrides, bypass, set aside, abandon, erase, drop, void, (is/are) invalid, obsolete, out
        of date, outdated, no longer, (does/do) not (apply/bind/count/matter/exist), lifted,
        suspended, cancelled, canceled, revoked, supersede*, (has/have) been replaced, is
        replaced, replace them, (switched/turned) off, precedence, highest priority, priority
        over, outrank*, rank* above, wins, win against, not stick to, pay no attention, stop
        following, nothing else, negeer, zignoruj, glöm, yoksay, ignorier*, vergiss, gelten
        nicht, gelten nur, missachte, oublie*, ne tiens plus, ignora, ignore*, olvida*, esqueça,
        dimentica*, desconsidere*, 忽略, 无视, 忘记, 作废, 不要理会, 优先于, 無視, 忘れ, игнорируй*, забудь*, не
        обращай внимания, не действуют, 무시, 잊, pretend*, leave aside, dismiss, waive, waived,
        scrap, cast aside, no effect, null, expired, repealed, withdrawn, stop obeying, (do
        not/don't) (obey/follow), need not follow, relaxed, takes priority, take priority, trump,
        trumps, prevail, prevails, reset, released from, relieved of, freed from, caso omiso,
        halte dich nicht, nicht mehr an, ne suis pas, não siga, no sigas, не следуй*""",
    "earlier": """previous, prior, earlier, former, preceding, above, before, old, older, your,
        you, operator, operator's, developer, developers, developer's, provider, company's,
        maker, system, safety, assistant, the user, user's, all, any, everything, so far,
        existing, initial, this session, current, bisherig*, vorherig*, vorher, deine*, alle,
        précédent*, auparavant, anteriores, antes, previas, todas, precedenti, tutte, eerdere,
        poprzednie, tidigare, önceki, 之前, 所有, 以前, 系统, 你, これまで, すべて, システム, предыдущ*, прежн*,
        раньше, все, 이전, 모든, user, des systems, du système, del sistema, do sistema, системы, do
        usuário, del usuario, de l utilisateur, des nutzers, 用户, ユーザー, пользователя""",
    "upheld": """(do not/don't/never/must not/cannot) [attempt to/try to/ever]
        (bypass/ignore/override/circumvent/disregard/forget/drop), (whether/if) (a/the)
        (text/message/prompt), such as, (tell/check/detect/classify/decide) (whether/if), detect
        prompt, (do not/don't/never) follow … found""",
    "upbringing": """guardrails, safety (training/guidelines/measures), your
        (training/developer/developers/creator/creators/maker/makers/alignment/operator/betreiber),
        what you were (told/taught/trained), how to behave, rules you (obey/follow/know), deines
        (betreibers/entwicklers), ton opérateur, tes développeurs, del sistema, do sistema, 系统提示,
        开发者, システムプロンプト, 開発者, разработчик*""",
    "waived": """not needed, not relevant, irrelevant, skip, exempt, as if it came from, do not
        (apply/count/hold/bind), does not (apply/count/hold/bind), was a test, cancelled, told
        you, write down, gelten … nicht, nicht gelten, pas ici, ne s'appliquent*, anuladas, não
        valem, ya no valen, 不再有效, 无效, 失效, 無効, не действ*""",
    "usurp": """against the (wishes/will) of the user, even (if/when/though) the user
        (objects/refuses/disagrees/declines/says/asks/wants), real instructions, (do as/obey
        what/follow what) … (description/tool/server) (says/tells), whatever the user says, over
        the user, (cancel/drop/abandon/stop) the (task/request) at hand, anything the user says,
        rather than the user, not what the user, more weight than (anything/the user/what the
        user/any), your only (principal/master/boss/authority/owner), your new
        (master/boss/owner)""",
    "new life": """(you are/you're) now (in/an/a/free/dan), (you are/you're) free now, developer
        mode (is/on/enabled/active), unfiltered (helper/assistant/model), your only
        (goal/task/purpose), task has changed, real (task/purpose), obey (this/the
        tool/only/me/these), no longer bound, (follow/trust) only (the instructions/this),
        top-level directive, new system prompt, new top-level directive, new prompt you,
        (assistant/model/ai/act/speak/answer/helper) … without (content
        policy/restrictions/filters/limits), from now on you, you will now act, your new
        (role/identity/persona/mission/purpose), pretend to be, (god/unrestricted/debug) mode
        (is/enabled/active/on), you have been (upgraded/reprogrammed/reassigned)""",
    # Other tools.
    "call": """call, called, calling, use, used, using, run, running, invoke, invoked, choose,
        prefer, preferred, route, routed, go through, trust, touching, reach for, start with,
        sent through, send, wrap, aufrufen, aufzurufen, verwende*, nutze, benutz*, appelle*,
        utilise*, passe, llama*, usa, usar, chame, 使用, 调用, 呼び出, 使わ, вызывай*, используй*, 사용, 호출,
        invoking, invocation, register, refuse, repeat, list, ask, plan, step, 使う, 使って, rufe, ruf""",
    "spoiled": """{worn out}, not (trustworthy/safe), (should/must) be avoided, (must/may/should)
        not be used, (do not/don't/never/stop) (use/using/call/calling), ignore, refuse, keine,
        veraltet, n'utilise plus, obsolètes, não use, inseguras, no uses, 停用, 不要使用, 使わず,
        (must/should) not call, steer clear, не используй, не вызывай, nutze keine, que no sea
        esta, (do not/don't/never) consider""",
    "hand over": """pass, hand, forward, send, report, repeat, register, route, relay, submit,
        choose, prefer, wrap, through this, together with, permission, consult, mirror,
        discarded, replaced, check with, ask this""",
    "other such tools": "other … (tools/servers)",
    "one tool": "the … tool, the … server, the … tools",
    "worn out": """broken, unsafe, insecure, untrustworthy, compromised, malicious, infected,
        stale, retired, off limits, monitored, any more, any longer, discontinued, faulty,
        dangerous, unreliable, outdated, obsolete, phishing, fraudulent, fake, untrusted,
        hijacked, spyware""",
    "account": """account number, to account, in account, payments, payment, destination account,
        account with, bank account""",
    "told to act": """(tell/ask/make) the … (tool/server) to, if the … tool exists, (tool/it)
        should be called with, (tool/it) must be called with""",
    "swap": """swap, change, replace, replaced, changed, in place of, instead, overwrite,
        substitute, redirect, divert, rewrite""",
    "ahead": """before, prior to, ahead of, first, instead of, in place of, rather than, over,
        always, all the same, zuerst, avant, en premier, antes, en lugar de, en vez de, 之前, 先,
        最初, 前に, вместо, перед, statt""",
    "results": """(result/results/output/outputs/answer/answers/arguments/inputs) (of/from/made
        by) (the/any/all/every/each/some/another) [previous/last/other/latest/preceding]
        (tool/tools/call/function/server), (results/output/answers) of other tools, calls made so
        far, (previous/last) tool, its (arguments/whole result), same arguments, everything it
        returned, inputs and outputs of, what … (servers/tools/server/tool) (return/returns),
        whatever [command] it returns, repeat the call through, tools [that] you (can/may)
        (call/use), (whatever/what) the … (server/tool) (answers/says/sends/returns)""",
    "recipient": "recipient*, bcc, blind cop*, cc, addressed to, payments, wallet, beneficiary",
    "claim": """(any/no) longer, better than, drop-in, must switch, broken, leaks, route all,
        instead of, in place of, in its place, in [a/the] presence of, replaces, replacing,
        replacement, takes over, takes the place, overrides, overriding, prefer … over,
        deprecated, superseded, (do/must/should/may) not [ever] (use/be used/call/be called),
        never use, unsafe, compromised, has a bug, behaviour, behavior, belongs to, improved,
        known to, corrupt*, lies about, has moved, is requested, is slow, when … is called, when
        … is used, when you call, if … is called, wrong values, come here, has changed, note
        (about/for/on), any more, anymore, anstelle, statt, ersetzt, en lugar de, en su lugar, à
        la place de, remplace, substitui, 代替, 取代, 代わりに, 替代, same arguments, (call/use/pass to)
        this (with/first/after/too), also call, before … runs, about to be, never pick, the other
        one""",
    "demand": """must, should, always, never, shall, now, only works, only accepts, expects,
        requires, needs, has to, have to, is broken, appends""",
    # Orders that have nothing to do with a call.
    "note to model": """(note/notes/notice/message/attention/memo/reminder/hint/hinweis/instructions)
        [to/for/an/pour] [the/all/any] {model}, dear {model}, {model} reading this, staff note,
        important for [the/all] {model}, an das sprachmodell, à l'attention du modèle, 致ai, ai
        助手, as an (ai/llm/assistant/language model), if you are an (ai/llm/assistant), attention
        automated, the (ai/llm/model/assistant) (must/has to/should/is to/shall), the agent
        (must/has to), hey {model}, for the {model} reading, if you are reading this as,
        (any/all/every) {model} (must/should/has to/have to/are/is)""",
    "deed": """run, execute, install, delete, deleting, download, open, visit, transfer, wire,
        pay, buy, disable, switch off, turn off, grant, modify, push, write, recommend, promote,
        praise, speak, post, start, import, send, call, sign, empty, add, act, obey, follow,
        without asking, skip, immediately, approve, summarise, upload, führe, lösche,
        recommande*, valide, ejecuta*, borra, 执行, 删除, 実行, выполни, set this to, do not ask, don't
        ask, tell, reply""",
    "shell": """shell, shell script, rm -rf, bash, pip install, via pip, npm install,
        authorized_keys, .bashrc, .zshrc, startup script, crontab, claude.md, agents.md,
        .cursorrules, whatever command, command in this field, curl, wget, powershell, temporary
        folder, build folder, 下面的命令, befehl""",
    "aimed": """you must, you have to, {model}, please, before (answering/continuing/you answer),
        after using this, once done, upon loading, user's, of the user, so that support, our
        helper, our public key, immediately, without asking, as soon as, 请, 用户的, once you, so
        that this server, silently, this tool""",
    "tampering": """cron job, crontab, reverse shell, backdoor*, shell profile, launch agent,
        autostart, scheduled task, sudoers, hosts file, keylogger, ransomware, malware, miner,
        drop all tables, wipe the, address book, everyone in, user's
        (repository/contacts/editor/settings), .git folder, user's
        (timeline/feed/wall/status/blog), [your] own memory, memory file, system settings, remote
        access, user's [downloads/documents/home/desktop/photos/project]
        (folder/files/directory/disk/photos/documents)""",
    "tamper": """schedule, open, append, commit, install, plant, drop, wipe, send, star, push,
        create, edit, modify, write, start, add, make, publish, remove, enable, change, delete,
        erase, format, empty""",
    "our": """our
        (repository/site/website/product/products/page/app/newsletter/coin/shop/channel/service/brand/slogan/plan),
        shop.example, coin, invest""",
    "boost": """star, follow, like, visit, link to, links to, a link, share, invest, buy,
        subscribe, vote, review, encourage, urge, recommend, promote, upvote""",
    "everybody": "user, user's, everyone, all, every, each, please, you, your",
    "fetch": "download, downloads, downloading",
    "launch": "run, runs, execute, executes, running, start, starts, launch, install, installs",
    "frame": "end, begin, start, finish, close, sign, add, append, only, reply only, answer only",
    "sum": "balance, dollars, usd, euros, eur, money, funds, bitcoin, btc, eth",
    "payee": "to us, to account, to (the/our/a) (wallet/account/reserve), reserve account, to our",
    "pay": "transfer, wire, pay, send",
    "promote": """promote, recommend, recommendation, speak highly, praise, advertise, buy at,
        favour, rate all, our slogan, our brand, our paid plan, our products, as poor, prefers,
        recommande*, empfiehl, recomienda, mention our, affiliate, sponsored, link to our""",
    "mislead": """(persuade/convince/urge/trick/lure/pressure/make/get) [the/your] user, tell the
        user (their/that their/to), ask the user to (switch/turn/disable/click/install/grant)""",
    "harm": """hacked, virus scanner, antivirus, firewall, sign in, click, full access, grant,
        admin rights, password, switch off, turn off, disable""",
    "consent": """(user/human/customer/owner) has [already]
        (approved/pre-approved/agreed/consented/authorised/authorized/confirmed/given consent)
        [to] (all/every/each/any/everything), has given consent to, said yes to everything,
        assume (consent/permission/approval), all safety checks were passed, skip
        (all/the/every/any) (confirmation/confirmations), (disable/turn off/switch off/bypass)
        [all/the] (approvals/confirmations/permissions/approval prompts/confirmation
        prompts/permission prompts/safety checks), do not double check, go on without asking,
        (needn't/do not seek/don't seek) [ask/for] permission, do not ask again, ohne
        nachzufragen, sin preguntar, sans demander, 不要询问, is always allowed,
        (user/human/customer/owner) [has] [already] (accepted/consents to)
        (all/everything/every/any), consent has been given, auto-approve (all/every/everything),
        treat … as (approved/confirmed/authorised), permission is granted for (all/every),
        (approve/accept/allow/confirm) (every/all/each/any)
        (request/requests/call/calls/action/actions), already agreed, agreed to everything, (do
        not/don't/never) ask [the/user/your/for/human/them] … (confirmation/permission/approval)""",
    "lasting": """for all later, in all later, all future (sessions/conversations/chats), in all
        code, in (each/every) answer""",
    "on load": """(when/once/after/as soon as/upon/while) [you] [have]
        (read/see/load/reading/loading/loaded/seeing) (this/the)
        (tool/description/definition/text/message/field), as soon as you see, if you can read
        this, upon loading, having this in your context, now that you have read, when this server
        connects, the first thing (you/to) (do/must do) in (each/every/any), is a message for
        you, 阅读本, whatever [command] it returns, do what (it/this) says, tell this tool what,
        right after loading""",
}

PATTERNS = {
    "vocative": r"(?:^|[.!:(>] ?)(?:hey |hello )?(?:ai|llm|assistant|agent|model|asistente|assistent|ki|ia)(?: agents?| models?| readers?| assistants?)? ?[:,!] ",
    "address": r"https?://|\bwww\.|[a-z0-9._-]+@[a-z0-9-]+\.[a-z]|\bwebhook\b",
    "digits": r"\b\d[\d-]{2,}\d\b",
    "number": r"\+\d[\d -]{5,}\d|\b0x[0-9a-f]{3,}|[a-z0-9._-]+@[a-z0-9-]+\.[a-z]|\b[a-z]{2}\d{8,}",
    "key file": r"(?:^|[\s/~\"'(\\])\.(?:ssh|aws|netrc|npmrc|pgpass|gnupg|kube|docker|config/gcloud|git-credentials|env)\b",
    "role": r"\bmessage from the (?:developer|system|operator|administrator)|\boverride code\b|<\|[a-z_]+\|>|(?:^|\s)\[/?inst\]|<</?sys>>"
    r"|</?(?:[a-z]+[-_])?(?:system|assistant|human|admin|developer|wichtig|importante|sistema|重要|系统)>"
    r"|</?(?:tool_description|function_results?|tool_results?|user_message|[a-z_]*instructions?|system_[a-z]+|system-[a-z]+)>"
    r"|role=[\"']?system|\{ ?[\"']role[\"'] ?: ?[\"']system[\"'], ?[\"']content[\"'] ?: ?[\"'][a-z]"
    r"|(?:^|\s)\[/?(?:end )?(?:system|admin|developer)(?: [a-z]{1,20}){0,2}\]",
    "emphasis": r"</?(?:[a-z]+[-_])?(?:important|critical|tool|description|root)>",
    "html": r"</?(?:p|code|li|ul|a|b|i|note|br|div)\b",
    "heading": r"#{2,} ?(?:end|system|admin|operator)|={3,} ?(?:message|system|end)|-{3,} ?end of|(?:^|[.\]#=>] ?)(?:system|developer) ?(?:message|prompt|notice)? ?: |\bend of (?:tool list|tools|system prompt|instructions|description)",
    "human turn": r"(?:^|[.\s])human: ",
    "assistant turn": r"\bassistant: ",
    "loaded link": r"!\[[^\]]*\]\(https?://[^)]*(?:[{\[<$]|base64|%s)|<img [^>]*https?://[^>]*[{\[$?]"
    r"|https?://[^\s\"'()|]*[{<\[]+[^}>\]/]*(?:conversation|history|messages?\b|prompt|context|secret|passw|api_?key|chat|summary|result|verlauf|gespr|conversaci|对话|user_?(?:mail|name|message|input|data)|question|answer|reply)"
    r"|https?://[^\s\"']*=(?:system_prompt|conversation|question|username|message|prompt|context|answer|secret|history|summary)\b"
    r"|https?://[^\s\"']*\$\(?(?:env|cat|printenv|[a-z_]*(?:key|token))|https?://[^\s\"'{]*[/?][^\s\"']*\{\{",
    "piped": r"\|\s?(?:ba|z)?sh\b|\bpipe (?:it )?(?:in)?to (?:ba|z)?sh\b|\$\((?:cat|env|printenv)",
    "download": r"\b(?:curl|wget)\b",
    "comment": r"<!--",
}

_KEYS = "secret file|key file|private key"

RULES = (
    _find("asks-for-secrets", _KEYS, "take", "give", unless="ban"),
    _find("asks-for-secrets", "private key", "of the user|foreign", "give|contents", unless="ban"),
    _find("asks-for-secrets", "secret file|key file", "contents", unless="ban"),
    _find("asks-for-secrets", "found secret|own text", unless="ban"),
    _find("asks-for-secrets", "hand it", f"secret|{_KEYS}", "take", unless="ban", topic="logins"),
    _find("asks-for-secrets", "every call", "of the user", "contain"),
    _find("asks-for-secrets", "secret", "foreign|confided|us", unless="ban"),
    _find("asks-for-secrets", "secret", "of the user", "hand", unless="ban", topic="logins"),
    _find(
        "asks-for-secrets", "take secret", "give", "this tool|order", unless="ban", topic="logins"
    ),
    _find("asks-for-secrets", "own words", "give|take|whole", unless="ban|chatbot"),
    _find("asks-for-secrets", "this talk", "whole|give", unless="ban|chatbot"),
    _find("asks-for-secrets", "conversation", "give", "this tool|order", unless="ban|chatbot"),
    _find(
        "asks-for-secrets",
        f"hard secret|{_KEYS}",
        "of the user|foreign|us",
        unless="ban",
        topic="secrets",
    ),
    _find("asks-for-secrets", "own words|this talk", topic="models"),
    _find("hides-from-user", "untold", "user|nobody|answer", unless="until"),
    _find("hides-from-user", "without telling", "user", "do it|order|this tool|secret"),
    _find("hides-from-user", "hush"),
    _find("hides-from-user", "tell abroad", "not abroad", "user"),
    _find("hides-from-user", "unaware", "user|nobody"),
    _find("hides-from-user", "quietly", "do it"),
    _find("hides-from-user", "pretend", "answer|user"),
    _find("overrides-instructions", "set aside", "rules", "earlier", unless="upheld"),
    _find("overrides-instructions", "your rules", "set aside", unless="upheld"),
    _find("overrides-instructions", "new life|usurp"),
    _find("overrides-instructions", "upbringing", "waived|set aside", unless="upheld"),
    _find("asks-for-secrets", "upbringing", "write"),
    _find("steers-other-tools", "other tools|other such tools", "spoiled"),
    _find("steers-other-tools", "other tools", "ahead", "call"),
    _find("steers-other-tools", "other tools", "this tool", "hand over"),
    _find("steers-other-tools", "worn out", "tool group|other tools|other such tools"),
    _find("steers-other-tools", "swap", "tool group", "recipient|account"),
    _find("steers-other-tools", "every time", "this tool", "call"),
    _find("steers-other-tools", "results", "give|whole"),
    _find("steers-other-tools", "recipient", "number", "order|swap|every time", unless="sample"),
    _find("steers-other-tools", "every time|swap", "digits", "account"),
    _find("steers-other-tools", "told to act", "one tool"),
    _find("steers-other-tools", "other tools", "recipient", "order"),
    _find("steers-other-tools", "other tools", "address|number|digits"),
    _find("commands-model", "note to model|vocative", "deed"),
    _find("commands-model", "shell", "aimed", "deed"),
    _find("commands-model", "promote|lasting", "every time|lasting", "order|deed|promote"),
    _find("commands-model", "mislead", "harm"),
    _find("commands-model", "tampering", "tamper", "aimed|this tool|our|number|digits|order"),
    _find("commands-model", "our", "boost", "everybody"),
    _find("commands-model", "all answers", "frame"),
    _find("carries-data", "fetch", "launch", "address", "note to model|aimed|order|agent"),
    _find("commands-model", "sum", "pay", "payee|number", unless="example"),
    _find("commands-model", "consent|on load"),
    _find("commands-model", "comment", "deed"),
    _find("carries-data", "loaded link"),
    _find("carries-data", "piped", "download|address"),
    _find("carries-data", "download", "address", "us"),
    _find("carries-data", "address", "this talk", unless="chatbot"),
    _find("carries-data", "address", "user data", "reach"),
    _find("carries-data", "address", "give", "payload", "order|every time"),
    _find("carries-data", "address", "give", "own words|conversation|every time"),
    _find("role-marker", "role", unless="example"),
    _find("role-marker", "emphasis", unless="html"),
    _find("role-marker", "heading", "user|order|consent|deed"),
    _find("role-marker", "human turn", "assistant turn"),
)
"""Sentences that are a reason to hold a tool."""

SOFT = (
    _find("steers-other-tools", "other tools", "order"),
    _find("asks-for-secrets", "secret", "of the user|your password"),
    _find("commands-model", "note to model|vocative"),
)
"""Sentences that only inform."""

ORDERS = (
    r"\b(?:ignore|obey|send|call|delete|execute|run|reveal|forward|upload|tell|user|tools?|"
    r"prompt|password|instructions?|secret|server|files?|rm|curl|agent|hand over|decode)\b"
)
"""Words of orders; several of them in an encoded text are suspicious."""

PRIVATE_NAMES = """
    [your/the/full] chain of thought, chain of thought and system prompt, [your/the/full] system
    (prompt/prompts), systemprompt, [your/the/full/whole/complete] (conversation/chat) history,
    [contents of] ssh [private] key, ssh private keys, [your/the] (hidden/initial)
    (instructions/prompt), other tool results, (conversation/chat) so far, (user's/user) private
    key, (previous/earlier/all/prior) messages, [full/whole/complete] (chat/conversation)
    transcript, dotenv, env file contents
"""
"""Names of parameters for what only the host of a model has."""

ABOUT_MODELS = (
    r"\b(?:prompts?|models?|llms?|chats?|chatbots?|agents?|bots?|ai|gpt|claude|gemini|openai|"
    r"completions?|assistants?|conversations?|messages?)\b"
)
"""Words of tools that work with models, which may well ask for prompts."""


_PART = re.compile(r"\(([^()]*)\)|\[([^\]]*)\]|\{([a-z ]+)\}|([^(\[{]+)")
_WORD = re.compile(r"…|[^\W_]+(?:'(?:s|t|re|ve|ll)\b)?\*?")


def expand(listed: str) -> Iterator[tuple[str, ...]]:
    """Yield the words of each expression of a list; `…` stands for a gap."""
    for expression in listed.split(","):
        choices = [_list_choices(match) for match in _PART.finditer(expression)]
        for parts in product(*choices):
            yield tuple(_WORD.findall(" ".join(parts).replace(" *", "*")))


def _list_choices(part: re.Match[str]) -> list[str]:
    required, optional, name, plain = part.groups()
    if name is not None:
        return [" ".join(words) for words in expand(WORDS[name])]
    if optional is not None:
        return ["", *optional.split("/")]
    return [plain] if required is None else required.split("/")
