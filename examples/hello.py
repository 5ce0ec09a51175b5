from enum import StrEnum

from agentflow import App, Context, Workflow


class Verdict(StrEnum):
    SPAM = "spam"
    OK = "ok"


class Message(Context):
    text: str


inbox = Workflow("inbox", Message)


@inbox.llm(Verdict, prompt="Is this message spam or ok?\n\n{{ text }}")
def judge(msg: Message) -> Message:
    return msg


spam, ok = inbox.end("spam"), inbox.end("ok")
inbox.build(start=judge, transitions=[judge.on(Verdict.SPAM).to(spam), judge.on(Verdict.OK).to(ok)])

if __name__ == "__main__":
    print(App([inbox]).run_sync(inbox, Message(text="You won a prize!")).end)
